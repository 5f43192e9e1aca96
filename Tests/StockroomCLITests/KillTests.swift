import BenchmarkKit
import Foundation
import StockroomCore
import StockroomStore
import Testing

@testable import StockroomCLI

@Suite("A process that is killed while it writes") struct KillTests {
  private static let engines = EngineCatalogue.all.filter { $0.capabilities.contains(.persistent) }.map(
    \.name)

  @Test(
    "Every acknowledged batch is there, no batch is half there, and the engine opens at once",
    arguments: engines, Durability.allCases)
  func killedFiftyTimes(name: String, durability: Durability) async throws {
    let engine = try #require(EngineCatalogue.all.first { $0.name == name })
    try await withTemporaryDirectory { directory in
      var random = SplitMix64(seed: 2_026)
      var expected = ExpectedContents(BatchSequence(seed: random.next()))
      for round in 1...50 {
        // Now and then the process is killed while it starts, otherwise while it writes the batch that follows.
        let lines = random.next(upTo: 8) == 0 ? 0 : 1 + random.next(upTo: 24)
        let printed = try await killWriter(
          [
            name, directory.path(percentEncoded: false), "--seed", "\(expected.sequence.seed)",
            "--durability", durability.rawValue,
          ], afterReading: lines)
        let acknowledged = printed ?? expected.number

        let opened = try engine.open(directory, durability)
        let found = try await BatchSequence.last(in: opened)
        try #require(found == acknowledged || found == acknowledged + 1, "round \(round)")
        try expected.advance(to: found)
        try await expected.verify(opened)
        try await opened.close()
      }
      // The writer has really written.
      #expect(expected.number > 50)
    }
  }

  @Test("A store that is opened afterwards has all of the old items or all of the new", arguments: engines)
  func killedWhileReplacing(name: String) async throws {
    let engine = try #require(EngineCatalogue.all.first { $0.name == name })
    try await withTemporaryDirectory { directory in
      var random = SplitMix64(seed: 2_027)
      var generation = 0
      for round in 1...15 {
        let lines = random.next(upTo: 6) == 0 ? 0 : 1 + random.next(upTo: 5)
        let printed = try await killWriter(
          [name, directory.path(percentEncoded: false), "--chains", "--durability", "process"],
          afterReading: lines)
        let acknowledged = printed ?? generation

        let opened = try engine.open(directory, .process)
        let store = try await Store<ItemOfGeneration>(storage: opened)
        let items = await store.items
        generation = items.first?.generation ?? 0
        try #require(generation == acknowledged || generation == acknowledged + 1, "round \(round)")
        let isWhole = items == (generation == 0 ? [] : ItemOfGeneration.all(of: generation))
        try #require(isWhole, "round \(round)")
        try await opened.close()
      }
      #expect(generation > 15)
    }
  }
}

/// What a store must hold after so many batches.
private struct ExpectedContents {
  struct Entry {
    var data: Data
    /// When the key was first written, and last: which operation it was, counted from the beginning.
    var created: Int
    var updated: Int
  }

  let sequence: BatchSequence
  private(set) var number = 0
  private var operations = 0
  private var entries: [CacheKey: Entry] = [:]
  private var seen: [CacheKey: (expected: Entry, found: StorageEntry)] = [:]

  init(_ sequence: BatchSequence) { self.sequence = sequence }

  mutating func advance(to last: Int) throws {
    try #require(last >= number)
    while number < last {
      number += 1
      for operation in sequence.batch(number) {
        operations += 1
        switch operation {
        case .removeAll: entries = [:]
        case .remove(let key): entries[key] = nil
        case .write(let data, let key):
          entries[key] = Entry(data: data, created: entries[key]?.created ?? operations, updated: operations)
        }
      }
    }
  }

  /// Throws unless the engine holds just these entries, in the order of creation, with timestamps that have not
  /// changed since the last time if the entry has not.
  mutating func verify(_ engine: any StorageEngine) async throws {
    let found = try await engine.readAllEntries()
    let inOrder = entries.sorted { $0.value.created < $1.value.created }
    // Compared beforehand, since a failure would otherwise list everything.
    let difference = zip(found, inOrder).first { $0.key != $1.key || $0.data != $1.value.data }?.0.key
    try #require(difference == nil, "The first difference after batch \(number) is there.")
    try #require(found.count == entries.count)
    try #require(try await engine.keyCount() == entries.count)
    let keysAgree = Set(try await engine.allKeys()) == Set(entries.keys)
    try #require(keysAgree, "allKeys() differs after batch \(number).")

    var seenNow: [CacheKey: (expected: Entry, found: StorageEntry)] = [:]
    for (found, expected) in zip(found, inOrder.map(\.value)) {
      try #require(found.createdAt <= found.updatedAt)
      if let before = seen[found.key], before.expected.created == expected.created {
        try #require(found.createdAt == before.found.createdAt)
        try #require(found.updatedAt >= before.found.updatedAt)
        if before.expected.updated == expected.updated {
          try #require(found.updatedAt == before.found.updatedAt)
        }
      }
      seenNow[found.key] = (expected, found)
    }
    seen = seenNow
  }
}
