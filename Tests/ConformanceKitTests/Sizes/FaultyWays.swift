import FaultyEngineWorker
import Foundation
import StockroomCore

@testable import ConformanceKit

// Engines in which one of several equivalent methods differs from the others.

extension SizeFault {
  private static let ofAnswers: [SizeFault] = ReadMethod.allCases.flatMap { method in
    [
      .init(
        method.rule, "ways.of-changing-what-was-asked",
        "remembers across transactions what \(method.call) answered",
        claiming: .transactions
      ) { RemembersAnswers(base: $0, method, missing: .transactions) },
      .init(
        method.rule, "ways.of-changing-what-was-asked",
        "remembers across imports what \(method.call) answered"
      ) { RemembersAnswers(base: $0, method, missing: .imports) },
    ]
  }

  static let ofWays: [SizeFault] =
    ofAnswers + [
      .init(
        .w2, "ways.of-changing-what-was-asked", "remembers across transactions when entries were updated",
        claiming: .transactions
      ) { RemembersAnswers(base: $0, .updatedAt, missing: .transactions, forgettingAbsence: true) },
      .init(.w1, "ways.of-writing", "refuses keys over 255 bytes in batches") {
        AlteredEngine(
          base: $0,
          batch: { batch in
            for (key, _) in batch where key.value.utf8.count > 255 {
              throw StorageError(.io, "The name is too long.")
            }
            return batch
          })
      },
      .init(.w1, "ways.of-writing", "applies values as text") {
        AlteredEngine(
          base: $0,
          operations: { operations in
            operations.map {
              if case .write(let data, let key) = $0, data.count < 5_000 {
                .write(Data(String(decoding: data, as: UTF8.self).utf8), key: key)
              } else {
                $0
              }
            }
          })
      },
      .init(.w1, "ways.of-writing", "imports values as text") {
        AlteredEngine(
          base: $0,
          imported: { entries in
            entries.map { entry in
              guard entry.data.count < 5_000 else { return entry }
              var entry = entry
              entry.data = Data(String(decoding: entry.data, as: UTF8.self).utf8)
              return entry
            }
          })
      },
      .init(.r3, "ways.of-writing", "composes accents when it reads everything") {
        AlteredEngine(
          base: $0,
          pairs: { pairs in
            pairs.map { (CacheKey(verbatim: $0.key.value.precomposedStringWithCanonicalMapping), $0.data) }
          })
      },
      .init(.r6, "ways.of-writing", "leaves empty values out of the list of entries") {
        AlteredEngine(base: $0, entries: { $0.filter { !$0.data.isEmpty } })
      },
      .init(.r3, "ways.of-writing", "returns values over 64 KiB cut when it reads all of them") {
        AlteredEngine(
          base: $0, values: { $0.map { $0.prefix(65_536).count < $0.count ? Data($0.prefix(65_536)) : $0 } })
      },
      .init(.l1, "ways.of-writing", "finds no keys over 255 bytes in questions for many") {
        AlteredEngine(base: $0, question: { $0.filter { $0.value.utf8.count <= 255 } })
      },
      .init(.r2, "ways.of-writing", "leaves empty values out of answers to many keys") {
        AlteredEngine(base: $0, requested: { $0.filter { !$0.data.isEmpty } })
      },
      .init(.w1, "ways.of-overwriting", "appends to a value in apply when the new one is empty") {
        AlteredEngine(
          base: $0,
          operations: {
            $0.filter {
              if case .write(let data, _) = $0 { !data.isEmpty } else { true }
            }
          })
      },
      .init(.w1, "ways.of-overwriting", "inserts with batches of one, and never replaces") {
        InsertsOnly(base: $0)
      },
      .init(.w1, "ways.of-overwriting", "imports over the beginning of a longer value") {
        LeavesTheTailOf(base: $0, method: .writeEntries)
      },
      .init(
        .w1, "ways.of-overwriting", "commits over the beginning of a longer value", claiming: .transactions
      ) { LeavesTheTailOf(base: $0, method: .transaction) },
      .init(.w2, "ways.of-writing-and-times", "lists times in whole seconds") {
        AlteredEngine(
          base: $0,
          entries: {
            $0.map { entry in
              var entry = entry
              entry.createdAt = Date(
                timeIntervalSince1970: entry.createdAt.timeIntervalSince1970.rounded(.down))
              entry.updatedAt = Date(
                timeIntervalSince1970: entry.updatedAt.timeIntervalSince1970.rounded(.down))
              return entry
            }
          })
      },
      .init(.w2, "ways.of-writing-and-times", "lists createdAt where updatedAt should be") {
        AlteredEngine(
          base: $0,
          entries: {
            $0.map { entry in
              var entry = entry
              entry.updatedAt = entry.createdAt
              return entry
            }
          })
      },
      .init(.w2, "ways.of-writing-and-times", "replaces whole rows in apply of one") {
        ReplacesRows(base: $0)
      },
      .init(.r6, "ways.of-writing-and-order", "puts what a batch overwrites at the end") {
        ReordersOverwrites(base: $0)
      },
      .init(.k1, "ways.of-refusing", "keeps the length of a key in 16 bits when it applies") {
        AppliesWithShortLengths(base: $0)
      },
      .init(.r5, "ways.of-overwriting", "scans an index that overwrites with batches do not reach") {
        ScansStaleIndex(base: $0)
      },
    ]
}

struct InsertsOnly: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    if dataAndKeys.count == 1, try await base.keysExist(dataAndKeys.map(\.key)).count == 1 { return }
    try await base.write(dataAndKeys)
  }
}

struct ReplacesRows: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    if operations.count == 1, case .write(_, let key) = operations[0] {
      return try await base.apply([.remove(key: key)] + operations)
    }
    try await base.apply(operations)
  }
}

/// Stores times and order separately, and loses the order when a batch writes.
final class ReordersOverwrites: FaultyEngine {
  let base: ReferenceEngine
  private let count: Int
  private let moved = MutexProtected<[CacheKey]>([])
  /// - Parameter count: Batches of at most this many entries are written in another way.
  init(base: ReferenceEngine, beyond count: Int = 0) { (self.base, self.count) = (base, count) }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    if dataAndKeys.count <= count { return }
    moved.withLock { moved in
      for (key, _) in dataAndKeys {
        moved.removeAll { $0 == key }
        moved.append(key)
      }
    }
  }
  func readAllEntries() async throws -> [StorageEntry] {
    let (entries, moved) = (try await base.readAllEntries(), moved.withLock { $0 })
    return entries.filter { !moved.contains($0.key) }
      + moved.flatMap { key in entries.filter { $0.key == key } }
  }
}

struct AppliesWithShortLengths: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(
      operations.filter {
        guard case .write(_, let key) = $0, key.value.utf8.count > 65_536 else { return true }
        return !(1...511).contains(key.value.utf8.count % 65_536)
      })
  }
}

/// Scans values in a separate index, in which the first overwrite by a batch makes the value of a key stale.
final class ScansStaleIndex: FaultyEngine {
  let base: ReferenceEngine
  private let stale = MutexProtected<[CacheKey: Data]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys {
      if let data = try await base.read(key: key) {
        stale.withLock { $0[key] = $0[key] ?? data }
      }
    }
    try await base.write(dataAndKeys)
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let (found, stale) = (try await base.scan(range, limit: limit), stale.withLock { $0 })
    return found.map { ($0.key, stale[$0.key] ?? $0.data) }
  }
}

/// One method writes a new value over the beginning of a longer one.
struct LeavesTheTailOf: FaultyEngine {
  let base: ReferenceEngine
  let method: ChangeMethod

  /// The writes whose values are shorter than the stored ones, with the rest of these appended.
  private func longer(
    _ written: [(key: CacheKey, data: Data)], than old: [(key: CacheKey, data: Data)]
  ) -> [(key: CacheKey, data: Data)] {
    let old = Dictionary(old.map { ($0.key, $0.data) }) { first, _ in first }
    return written.compactMap { key, data in
      guard let before = old[key], before.count > data.count else { return nil }
      return (key: key, data: data + before.dropFirst(data.count))
    }
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    let old = try await base.readDataAndKeys(keys: entries.map(\.key))
    try await base.writeEntries(entries)
    guard method == .writeEntries else { return }
    try await base.write(longer(entries.map { ($0.key, $0.data) }, than: old))
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    guard method == .transaction else { return try await base.withTransaction(body) }
    let (result, operations, before) = try await runOnCopyUntilAlone(body)
    let written = operations.compactMap { operation -> (key: CacheKey, data: Data)? in
      if case .write(let data, let key) = operation { (key: key, data: data) } else { nil }
    }
    try await base.write(longer(written, than: before.map { ($0.key, $0.data) }))
    return result
  }
}
