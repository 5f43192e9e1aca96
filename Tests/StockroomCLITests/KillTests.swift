import BenchmarkKit
import Foundation
import StockroomCore
import Testing

@testable import StockroomCLI

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

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
          name, directory, seed: expected.sequence.seed, durability: durability, afterReading: lines)
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

  /// Starts a writer, kills it once it has printed so many lines, and returns the last number that it printed.
  private func killWriter(
    _ engine: String, _ directory: URL, seed: UInt64, durability: Durability, afterReading lines: Int
  ) async throws -> Int? {
    let process = Process()
    let output = Pipe()
    let errors = Pipe()
    process.executableURL = CommandLineTool.url
    process.arguments = [
      "write-until-killed", engine, directory.path(percentEncoded: false), "--seed", "\(seed)",
      "--durability", durability.rawValue,
    ]
    process.standardOutput = output
    process.standardError = errors
    try process.run()

    var printed = Data()
    while printed.count(where: { $0 == UInt8(ascii: "\n") }) < lines {
      let more = output.fileHandleForReading.availableData
      if more.isEmpty { break }
      printed += more
    }
    #expect(kill(process.processIdentifier, SIGKILL) == 0)
    process.waitUntilExit()
    printed += try output.fileHandleForReading.readToEnd() ?? Data()

    let message = String(decoding: try errors.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
    try #require(message == "")
    try #require(process.terminationReason == .uncaughtSignal && process.terminationStatus == SIGKILL)
    let numbers = String(decoding: printed, as: UTF8.self).split(separator: "\n").compactMap { Int($0) }
    #expect(numbers == Array((numbers.first ?? 0)..<(numbers.first ?? 0) + numbers.count))
    return numbers.last
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
