import FaultyEngineWorker
import Foundation
import StockroomCore
import StockroomMemory
import TestFixtures

// Engines that handle imported entries wrongly, or what transactions leave behind.

// MARK: - Imported entries

/// Keeps the earlier of two creation times, on the assumption that an entry cannot be created twice.
struct KeepsOlderCreation: FaultyEngine {
  let base: MemoryStorageEngine
  func writeEntries(_ entries: [StorageEntry]) async throws {
    var entries = entries
    for index in entries.indices where (1...511).contains(entries[index].key.value.utf8.count) {
      guard let old = try await base.createdAt(key: entries[index].key) else { continue }
      entries[index].createdAt = min(old, entries[index].createdAt)
    }
    try await base.writeEntries(entries)
  }
}

/// In batches, ignores that the time of the last write may be ahead of the clock.
struct GoesBackFromTheFuture: FaultyEngine {
  let base: MemoryStorageEngine
  func writeEntries(_ entries: [StorageEntry]) async throws { try await base.writeEntries(entries) }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    var ahead: [StorageEntry] = []
    if dataAndKeys.allSatisfy({ (1...511).contains($0.key.value.utf8.count) }) {
      ahead = try await base.readEntries(keys: dataAndKeys.map(\.key)).filter { $0.updatedAt > Date() }
    }
    try await base.write(dataAndKeys)
    for entry in ahead {
      guard let data = try await base.read(key: entry.key) else { continue }
      try await base.writeEntries([
        StorageEntry(key: entry.key, data: data, createdAt: entry.createdAt, updatedAt: Date())
      ])
    }
  }
}

/// Gives an entry that is written again after a removal its imported times.
final class RevivesTimesOfEntries: FaultyEngine {
  let base: MemoryStorageEngine
  private let times = MutexProtected<[CacheKey: Date]>([:])
  init(base: MemoryStorageEngine) { self.base = base }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.writeEntries(entries)
    times.withLock { times in for entry in entries { times[entry.key] = entry.createdAt } }
  }
  func createdAt(key: CacheKey) async throws -> Date? {
    let date = try await base.createdAt(key: key)
    return date == nil ? nil : times.withLock { $0[key] } ?? date
  }
}

/// A correct engine that keeps its entries, with their times, for as long as the process runs.
struct KeptInMemory: FaultyEngine {
  let base: MemoryStorageEngine
  let isReopened: Bool
  private static let places = MutexProtected<[URL: MemoryStorageEngine]>([:])

  init(_ place: URL) {
    (base, isReopened) = Self.places.withLock { places in
      if let engine = places[place] { return (engine, true) }
      let engine = MemoryStorageEngine()
      places[place] = engine
      return (engine, false)
    }
  }
  func writeEntries(_ entries: [StorageEntry]) async throws { try await base.writeEntries(entries) }
  func close() async throws {}
}

/// Sorts entries by their creation times when it is opened.
struct SortsByTimeWhenOpened: FaultyEngine {
  let base: KeptInMemory
  func writeEntries(_ entries: [StorageEntry]) async throws { try await base.writeEntries(entries) }
  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    return base.isReopened ? entries.sorted { $0.createdAt < $1.createdAt } : entries
  }
}

/// Returns slices of the data that it has read from a file.
struct GivesSlicesOfEntries: FaultyEngine {
  let base: ReferenceEngine
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await base.readEntries(keys: keys).map { entry in
      var entry = entry
      entry.data = (Data([0]) + entry.data).dropFirst()
      return entry
    }
  }
}

// MARK: - What transactions leave behind

/// Imports entries, but does not overwrite existing ones.
final class InsertsEntries: ForwardingTransaction {
  override func writeEntry(_ entry: StorageEntry) throws {
    if try !base.keyExists(entry.key) { try base.writeEntry(entry) }
  }
}

/// Does not save everything of its transactions.
final class SavesTransactionsBadly: FaultyEngine {
  enum Loss: Sendable { case order, times, removeAll }
  private struct Saved {
    var keys: Set<CacheKey> = []
    var removed: [CacheKey: Data] = [:]
  }

  let base: ReferenceEngine
  private let place: URL
  private let loss: Loss
  private let opened = Date()
  /// The saved changes of transactions before the opening.
  private let old: Saved
  private static let saved = MutexProtected<[URL: Saved]>([:])

  init(base: ReferenceEngine, _ place: URL, losing loss: Loss) {
    (self.base, self.place, self.loss) = (base, place, loss)
    old = Self.saved.withLock { $0[place] ?? Saved() }
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let before = try await base.readAllDataAndKeys()
    let (result, isRemoved) = try await base.withTransaction { transaction in
      let noting = NotesRemoveAll(transaction)
      return (try body(noting), noting.hasRemovedAll)
    }
    let after = Set(try await base.allKeys())
    Self.saved.withLock { saved in
      saved[place, default: Saved()].keys.formUnion(after.subtracting(before.map(\.key)))
      guard isRemoved else { return }
      for (key, data) in before where !after.contains(key) {
        saved[place, default: Saved()].removed[key] = data
      }
    }
    return result
  }
  func read(key: CacheKey) async throws -> Data? {
    let data = try await base.read(key: key)
    return loss == .removeAll ? data ?? old.removed[key] : data
  }
  func readAllEntries() async throws -> [StorageEntry] {
    var entries = try await base.readAllEntries()
    if loss == .times {
      for index in entries.indices where old.keys.contains(entries[index].key) {
        entries[index].createdAt = max(entries[index].createdAt, opened)
        entries[index].updatedAt = max(entries[index].updatedAt, opened)
      }
    }
    guard loss == .order else { return entries }
    var sorted = entries.filter { old.keys.contains($0.key) }.sorted { $0.key < $1.key }[...]
    return entries.map { old.keys.contains($0.key) ? sorted.popFirst() ?? $0 : $0 }
  }
}

private final class NotesRemoveAll: ForwardingTransaction {
  private(set) var hasRemovedAll = false
  override func removeAll() throws {
    try base.removeAll()
    hasRemovedAll = true
  }
}
