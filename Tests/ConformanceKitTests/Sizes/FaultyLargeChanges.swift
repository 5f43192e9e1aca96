import FaultyEngineWorker
import Foundation
import StockroomCore
import StockroomMemory
import TestFixtures

@testable import ConformanceKit

// Engines that make large changes in another way than small ones, and forget a part of it: the order of repeats, the
// times and the position of entries, the count, or what must be saved.

extension SizeFault {
  static let ofLargeChanges: [SizeFault] = [
    .init(.w3, "sizes.repeats-in-batches", "imports the first of several parts last") {
      AlteredEngine(base: $0, imported: { $0.count > 300 ? Array($0.dropFirst(300) + $0.prefix(300)) : $0 })
    },
    .init(.w5, "sizes.repeats-in-batches", "applies the first of several parts last") {
      AlteredEngine(base: $0, operations: { $0.count > 300 ? Array($0.dropFirst(300) + $0.prefix(300)) : $0 })
    },
    .init(
      .l2, "sizes.apply", "counts overwrites as new when it applies more than 500 operations",
      shows: "no failure with 357; with 358"
    ) { CountsLargeOverwrites(base: $0, beyond: 500) },
    .init(
      .k3, "sizes.batches", "appends the keys of more than 200 imported entries to its list",
      shows: "no failure with 200; with 201"
    ) { ListsImportsAgain(base: $0, beyond: 200) },
    .init(
      .w2, "sizes.transactions", "replaces whole rows when a body has changed more than 50", shows: "with 52",
      claiming: .transactions
    ) { AltersTransactions(base: $0) { ReplacesManyRows($0, beyond: 50) } },
    .init(
      .r6, "sizes.timestamps", "moves what more than 100 imported entries replace to the end",
      shows: "no failure with 100; with 101", claiming: .preservesTimestamps
    ) { _ in MovesImports(base: MemoryStorageEngine(), beyond: 100) },
    .init(.r2, "sizes.requests", "has a mebibyte for the keys of a statement") {
      AlteredEngine(
        base: $0,
        request: { keys in
          if keys.reduce(0, { $0 + $1.value.utf8.count }) > 1 << 20 {
            throw StorageError(.io, "The statement is too long.")
          }
          return keys
        })
    },
    .init(.l1, "sizes.requests", "looks for a mebibyte of keys") {
      AlteredEngine(base: $0, question: { $0.withinAMebibyte })
    },
    .init(.k3, "sizes.requests", "lists a mebibyte of keys") {
      AlteredEngine(base: $0, keys: { $0.withinAMebibyte })
    },
    .init(.d2, "sizes.requests", "removes the first mebibyte of keys when it removes everything") {
      RemovesAMebibyte(base: $0)
    },
    .init(.w4, "sizes.of-new-keys-that-appear-at-once", "counts the new keys of a large batch late") {
      CountsNewKeysLate(base: $0)
    },
    .init(.w4, "sizes.mixture-appears-at-once", "applies removals with writes in parts of 128") {
      AppliesMixturesInParts(base: $0)
    },
    .init(.w1, "sizes.of-a-value-that-appears-at-once", "overwrites a large value half by half") {
      OverwritesInHalves(base: $0)
    },
    .init(.w6, "sizes.reopened", "saves 1,000 of the entries that it imports", isPersistent: true) {
      SavesAThousand(base: $0, of: .writeEntries)
    },
    .init(.w6, "sizes.reopened", "saves 1,000 of the keys that it removes", isPersistent: true) {
      SavesAThousand(base: $0, of: .removeMany)
    },
  ]
}

extension [CacheKey] {
  /// The first keys that have at most a mebibyte together.
  fileprivate var withinAMebibyte: [CacheKey] {
    var bytes = 0
    return Array(
      prefix {
        bytes += $0.value.utf8.count
        return bytes <= 1 << 20
      })
  }
}

/// Removes the keys of one page of its list.
struct RemovesAMebibyte: FaultyEngine {
  let base: ReferenceEngine
  func removeAllData() async throws { try await base.remove(keys: base.allKeys().withinAMebibyte) }
}

/// Adds the number of rows that a large batch has written to a stored count.
final class CountsLargeOverwrites: FaultyEngine {
  let base: ReferenceEngine
  private let limit: Int
  private let surplus = MutexProtected(0)
  init(base: ReferenceEngine, beyond limit: Int) { (self.base, self.limit) = (base, limit) }
  func apply(_ operations: [StorageOperation]) async throws {
    let before = try await base.keyCount()
    try await base.apply(operations)
    guard operations.count > limit else { return }
    let rows = Set(operations.compactMap(\.written).map(\.key)).count
    let new = try await base.keyCount() - before
    surplus.withLock { $0 += rows - new }
  }
  func keyCount() async throws -> Int { try await base.keyCount() + surplus.withLock { $0 } }
}

/// Has a list of keys beside the entries, to which a large import appends its keys without checking for duplicates.
final class ListsImportsAgain: FaultyEngine {
  let base: ReferenceEngine
  private let limit: Int
  private let listed = MutexProtected<[CacheKey]>([])
  init(base: ReferenceEngine, beyond limit: Int) { (self.base, self.limit) = (base, limit) }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    let existing = try await base.keysExist(entries.map(\.key))
    try await base.writeEntries(entries)
    if entries.count > limit { listed.withLock { $0 += existing } }
  }
  func allKeys() async throws -> [CacheKey] { try await base.allKeys() + listed.withLock { $0 } }
}

/// Removes each row before it is written, once a body has written many.
final class ReplacesManyRows: ForwardingTransaction {
  private let limit: Int
  private var count = 0
  init(_ base: any StorageTransaction, beyond limit: Int) {
    self.limit = limit
    super.init(base)
  }
  override func write(_ data: Data, key: CacheKey) throws {
    count += 1
    if count > limit { try base.remove(key: key) }
    try base.write(data, key: key)
  }
}

/// Removes the entries that a large import replaces, but keeps the imported times.
struct MovesImports: FaultyEngine {
  let base: MemoryStorageEngine
  let limit: Int
  init(base: MemoryStorageEngine, beyond limit: Int) { (self.base, self.limit) = (base, limit) }
  var capabilities: EngineCapabilities { base.capabilities.subtracting([.transactions, .changeFeed]) }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    if entries.count > limit { try await base.remove(keys: entries.map(\.key)) }
    try await base.writeEntries(entries)
  }
}

/// Keeps everything in memory. Its file, which it writes when it is closed, has the first thousand changes of a call.
final class SavesAThousand: FaultyEngine {
  let base: ReferenceEngine
  private let method: ChangeMethod
  /// What the file has instead of what is in memory; nil stands for absent.
  private let file = MutexProtected<[CacheKey: Data?]>([:])
  init(base: ReferenceEngine, of method: ChangeMethod) { (self.base, self.method) = (base, method) }

  private func leave(_ old: [(key: CacheKey, data: Data)], of keys: [CacheKey]) {
    let values = Dictionary(old.map { ($0.key, $0.data) }) { first, _ in first }
    file.withLock { file in
      for key in keys { file[key] = .some(values[key]) }
    }
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    let unsaved = entries.dropFirst(1_000).map(\.key)
    let old = try await base.readDataAndKeys(keys: unsaved)
    try await base.writeEntries(entries)
    if method == .writeEntries { leave(old, of: unsaved) }
  }
  func remove(keys: [CacheKey]) async throws {
    let old = try await base.readDataAndKeys(keys: keys)
    try await base.remove(keys: keys)
    if method == .removeMany { leave(old, of: Array(keys.dropFirst(1_000))) }
  }
  func close() async throws {
    let unsaved = file.withLock { file in
      defer { file = [:] }
      return file
    }
    let operations = unsaved.map { key, data -> StorageOperation in
      data.map { StorageOperation.write($0, key: key) } ?? .remove(key: key)
    }
    if !operations.isEmpty { try await base.apply(operations) }
    try await base.close()
  }
}

/// Counts new keys of more than 1,000 entries a moment after it has stored them.
final class CountsNewKeysLate: FaultyEngine {
  let base: ReferenceEngine
  private let uncounted = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    guard dataAndKeys.count > 1_000 else { return try await base.write(dataAndKeys) }
    let keys = dataAndKeys.map(\.key)
    let new = Set(keys).subtracting(try await base.keysExist(keys)).count
    uncounted.withLock { $0 += new }
    defer { uncounted.withLock { $0 -= new } }
    try await base.write(dataAndKeys)
    for _ in 0..<20 { await Task.yield() }
  }
  func keyCount() async throws -> Int {
    let uncounted = uncounted.withLock { $0 }
    return max(0, try await base.keyCount() - uncounted)
  }
}
