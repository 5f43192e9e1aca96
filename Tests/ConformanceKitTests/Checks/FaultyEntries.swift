import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import StockroomMemory
import TestFixtures

// Engines that import entries wrongly.

extension FaultyEngineCase {
  static let ofEntries: [FaultyEngineCase] = [
    .init(
      .w2, "loses the times of entries",
      claiming: [.atomicBatches, .snapshotReads, .orderedScans, .preservesTimestamps]
    ) { LosesTimesOfEntries(base: $0) },
    .init(
      .w2, "goes back from the future in transactions",
      claiming: [.atomicBatches, .snapshotReads, .orderedScans, .preservesTimestamps, .transactions]
    ) { _ in GoesBackInTransactions(base: MemoryStorageEngine()) },
    .init(
      .w2, "cuts fractions off times before 1970 the wrong way",
      claiming: [.atomicBatches, .snapshotReads, .orderedScans, .preservesTimestamps, .transactions]
    ) { _ in CutsTimesTowardsZero(base: MemoryStorageEngine()) },
    .init(.w2, "stores an entry as created after it was updated") { BelievesTimesOfEntries(base: $0) },
    .init(
      .w2, "keeps the time at which the first of two entries was created",
      claiming: [.atomicBatches, .snapshotReads, .orderedScans, .preservesTimestamps]
    ) { _ in KeepsFirstCreations(base: MemoryStorageEngine()) },
    .init(
      .w1, "imports nothing whose time it has",
      claiming: [.atomicBatches, .snapshotReads, .orderedScans, .preservesTimestamps]
    ) { _ in ImportsOtherTimes(base: MemoryStorageEngine()) },
    .init(
      .w1, "imports nothing that is older than its removal",
      claiming: [.atomicBatches, .snapshotReads, .orderedScans, .preservesTimestamps]
    ) { _ in ImportsNothingRemoved(base: MemoryStorageEngine()) },
    .init(
      .w2, "dates writes after what it has imported", also: [.r6],
      claiming: [.atomicBatches, .snapshotReads, .orderedScans, .preservesTimestamps]
    ) { _ in DatesWritesAfterImports(base: MemoryStorageEngine()) },
    .init(.w4, "refuses times of entries on the way", also: [.w2]) { RefusesTimesOnTheWay(base: $0) },
    .init(.w3, "keeps the first of two entries of others") { KeepsFirstOfEntries(base: $0) },
    .init(.w4, "validates keys of entries on the way") { ValidatesEntriesOnTheWay(base: $0) },
    .init(.w4, "writes entries in parts") { WritesEntriesInParts(base: $0) },
    .init(persistent: .o3, "acknowledges entries of others when it is closed") { base, _ in
      AcknowledgesEntriesWhenClosed(base: base)
    },
    .init(.r6, "writes entries in the order of their creation") { SortsEntriesByTime(base: $0) },
    .init(.r6, "writes entries in the order of their creation if no key is repeated") {
      SortsEntriesByTime(base: $0, mayRepeat: false)
    },
  ]
}

struct LosesTimesOfEntries: FaultyEngine {
  let base: ReferenceEngine
}

/// Stores whole seconds and a fraction that is never negative.
struct CutsTimesTowardsZero: FaultyEngine {
  let base: MemoryStorageEngine
  private func stored(_ date: Date) -> Date {
    date.timeIntervalSince1970 < 0
      ? Date(timeIntervalSince1970: date.timeIntervalSince1970.rounded(.towardZero)) : date
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.writeEntries(
      entries.map { entry in
        var entry = entry
        entry.createdAt = stored(entry.createdAt)
        entry.updatedAt = stored(entry.updatedAt)
        return entry
      })
  }
}

/// Of several entries with one key in a batch, keeps the first creation time, and the last value and update time.
struct KeepsFirstCreations: FaultyEngine {
  let base: MemoryStorageEngine
  var capabilities: EngineCapabilities { base.capabilities.subtracting([.transactions, .changeFeed]) }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    var first: [CacheKey: Date] = [:]
    try await base.writeEntries(
      entries.map { entry in
        var entry = entry
        entry.createdAt = first[entry.key] ?? entry.createdAt
        first[entry.key] = entry.createdAt
        return entry
      })
  }
}

/// Skips imported entries whose `updatedAt` is that of the stored entry.
struct ImportsOtherTimes: FaultyEngine {
  let base: MemoryStorageEngine
  var capabilities: EngineCapabilities { base.capabilities.subtracting([.transactions, .changeFeed]) }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    let stored = try await base.readEntries(keys: entries.map(\.key))
    let times = Dictionary(stored.map { ($0.key, $0.updatedAt) }) { first, _ in first }
    try await base.writeEntries(entries.filter { times[$0.key] != $0.updatedAt })
  }
}

/// Remembers when keys were removed, and imports no absent entry of before.
final class ImportsNothingRemoved: FaultyEngine {
  let base: MemoryStorageEngine
  private let removals = MutexProtected<[CacheKey: Date]>([:])
  init(base: MemoryStorageEngine) { self.base = base }
  var capabilities: EngineCapabilities { base.capabilities.subtracting([.transactions, .changeFeed]) }

  func remove(key: CacheKey) async throws {
    try await base.remove(key: key)
    removals.withLock { $0[key] = Date() }
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    removals.withLock { $0[key] = nil }
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    for entry in entries { try entry.key.validate() }
    let removals = removals.withLock { $0 }
    let present = Set(try await base.keysExist(entries.map(\.key)))
    try await base.writeEntries(
      entries.filter { present.contains($0.key) || $0.updatedAt > removals[$0.key] ?? .distantPast })
  }
}

/// Dates single writes after everything that it has imported, even if that is ahead of the clock.
final class DatesWritesAfterImports: FaultyEngine {
  let base: MemoryStorageEngine
  private let last = MutexProtected(Date.distantPast)
  init(base: MemoryStorageEngine) { self.base = base }
  var capabilities: EngineCapabilities { base.capabilities.subtracting([.transactions, .changeFeed]) }

  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.writeEntries(entries)
    let newest = entries.map(\.updatedAt).max() ?? .distantPast
    if newest < Date() + 1_000_000 { last.withLock { $0 = max($0, newest) } }
  }
  func write(_ data: Data, key: CacheKey) async throws {
    let last = last.withLock { $0 }
    guard last > Date() + 1 else { return try await base.write(data, key: key) }
    let (created, updated) = (try await base.createdAt(key: key), try await base.updatedAt(key: key))
    try await base.writeEntries([
      StorageEntry(key: key, data: data, createdAt: created ?? last, updatedAt: max(last, updated ?? last))
    ])
  }
}

/// Detects a time that it cannot store only after storing the entries before it.
struct RefusesTimesOnTheWay: FaultyEngine {
  let base: ReferenceEngine
  func writeEntries(_ entries: [StorageEntry]) async throws {
    for entry in entries { try entry.key.validate() }
    let isStorable = { (entry: StorageEntry) in
      abs(entry.createdAt.timeIntervalSince1970) < 1e11 && abs(entry.updatedAt.timeIntervalSince1970) < 1e11
    }
    guard let index = entries.firstIndex(where: { !isStorable($0) }) else {
      return try await base.writeEntries(entries)
    }
    try await base.writeEntries(Array(entries[..<index]))
    throw StorageError(.io, "A time of \(entries[index].key) is too far away.")
  }
}

/// In transactions, ignores that the time of the last write may be ahead of the clock.
struct GoesBackInTransactions: FaultyEngine {
  let base: MemoryStorageEngine
  func writeEntries(_ entries: [StorageEntry]) async throws { try await base.writeEntries(entries) }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let entries = try await base.readAllEntries()
    let ahead = Dictionary(
      uniqueKeysWithValues: entries.filter { $0.updatedAt > Date() }.map { ($0.key, $0) })
    return try await base.withTransaction { try body(DatesAnew($0, ahead)) }
  }
}

private final class DatesAnew: ForwardingTransaction {
  private let ahead: [CacheKey: StorageEntry]
  init(_ base: any StorageTransaction, _ ahead: [CacheKey: StorageEntry]) {
    self.ahead = ahead
    super.init(base)
  }
  override func write(_ data: Data, key: CacheKey) throws {
    guard let entry = ahead[key] else { return try base.write(data, key: key) }
    try base.writeEntry(StorageEntry(key: key, data: data, createdAt: entry.createdAt, updatedAt: Date()))
  }
}

/// Stores imported times even if an entry was created after it was updated.
final class BelievesTimesOfEntries: FaultyEngine {
  let base: ReferenceEngine
  private let times = MutexProtected<[CacheKey: (createdAt: Date, updatedAt: Date)]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.writeEntries(entries)
    // Other times need no correction.
    times.withLock { times in
      for entry in entries where entry.createdAt > entry.updatedAt {
        times[entry.key] = (entry.createdAt, entry.updatedAt)
      }
    }
  }
  func createdAt(key: CacheKey) async throws -> Date? {
    let date = try await base.createdAt(key: key)
    return times.withLock { $0[key]?.createdAt } ?? date
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    let date = try await base.updatedAt(key: key)
    return times.withLock { $0[key]?.updatedAt } ?? date
  }
}

struct KeepsFirstOfEntries: FaultyEngine {
  let base: ReferenceEngine
  func writeEntries(_ entries: [StorageEntry]) async throws {
    var keys: Set<CacheKey> = []
    try await base.writeEntries(entries.filter { keys.insert($0.key).inserted })
  }
}

struct ValidatesEntriesOnTheWay: FaultyEngine {
  let base: ReferenceEngine
  func writeEntries(_ entries: [StorageEntry]) async throws {
    if entries.allSatisfy({ (1...511).contains($0.key.value.utf8.count) }) {
      return try await base.writeEntries(entries)
    }
    for entry in entries { try await base.writeEntries([entry]) }
  }
}

struct WritesEntriesInParts: FaultyEngine {
  let base: ReferenceEngine
  var size = 1
  /// Whether the keys of each part are only validated when the part is written.
  var validatesParts = false
  func writeEntries(_ entries: [StorageEntry]) async throws {
    if !validatesParts { for entry in entries { try entry.key.validate() } }
    for start in stride(from: 0, to: entries.count, by: size) {
      try await base.writeEntries(Array(entries[start..<min(start + size, entries.count)]))
      await Task.yield()
    }
  }
}

/// Imports entries without checking whether it is closed.
struct AcknowledgesEntriesWhenClosed: FaultyEngine {
  let base: ReferenceEngine
  func writeEntries(_ entries: [StorageEntry]) async throws {
    do {
      try await base.writeEntries(entries)
    } catch let error as StorageError where error.code == .closed {}
  }
}

struct SortsEntriesByTime: FaultyEngine {
  let base: ReferenceEngine
  /// Whether it sorts entries of which several have one key.
  var mayRepeat = true
  func writeEntries(_ entries: [StorageEntry]) async throws {
    if !mayRepeat, Set(entries.map(\.key)).count < entries.count {
      return try await base.writeEntries(entries)
    }
    try await base.writeEntries(entries.sorted { $0.createdAt < $1.createdAt })
  }
}

struct FindsNoEntriesWhenReadingFails: FaultyEngine {
  let base: ReferenceEngine
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    do {
      return try await base.readEntries(keys: keys)
    } catch let error as StorageError where error.code == .closed {
      return []
    }
  }
}
