import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines in memory that fail with many entries, many bytes or many calls, or whose clock differs.

/// A cache that evicts the oldest entries beyond a number of entries or bytes.
final class EvictsTheOldest: FaultyEngine {
  let base: ReferenceEngine
  private let maximumCount: Int
  private let maximumBytes: Int
  private let state = MutexProtected((keys: [CacheKey](), first: 0, bytes: 0))
  init(base: ReferenceEngine, count: Int = .max, bytes: Int = .max) {
    (self.base, maximumCount, maximumBytes) = (base, count, bytes)
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    let size = dataAndKeys.first?.data.count ?? 0
    let evicted = state.withLock { state in
      state.keys += dataAndKeys.map(\.key)
      state.bytes += dataAndKeys.reduce(0) { $0 + $1.data.count }
      var evicted: [CacheKey] = []
      while state.keys.count - state.first > maximumCount || state.bytes > maximumBytes {
        evicted.append(state.keys[state.first])
        state.first += 1
        state.bytes -= size
      }
      return evicted
    }
    if !evicted.isEmpty { try await base.remove(keys: evicted) }
  }
}

/// With more than 2,500 entries, `readDataAndKeys(keys:)` does not find short keys.
final class ForgetsWhatIsRead: FaultyEngine {
  let base: ReferenceEngine
  init(base: ReferenceEngine) { self.base = base }
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    let found = try await base.readDataAndKeys(keys: keys)
    let isFull = try await base.keyCount() > 2_500
    return isFull ? found.filter { $0.key.value.utf8.count > 8 } : found
  }
}

/// Reports corruption if there are more entries than checksums.
struct HasChecksums: FaultyEngine {
  let base: ReferenceEngine
  let count: Int
  init(base: ReferenceEngine, of count: Int) { (self.base, self.count) = (base, count) }
  func verify() async throws {
    if try await base.keyCount() > count { throw StorageError(.corrupted, "A checksum is missing.") }
  }
}

/// Loses an overwrite now and then, which is visible until the next one.
final class LosesSomeOverwrites: FaultyEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    let isThere = try await base.read(key: key) != nil
    let number = count.withLock { count in
      if isThere { count += 1 }
      return count
    }
    if isThere, number.isMultiple(of: 250) { return }
    try await base.write(data, key: key)
  }
}

/// Loses one import of three hundred.
final class LosesSomeImports: FaultyEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try entries.map(\.key).validate()
    let number = count.withLock { count in
      count += 1
      return count
    }
    if !number.isMultiple(of: 300) { try await base.writeEntries(entries) }
  }
}

/// Leaves the last key out of each hundredth list.
final class ShortensSomeLists: FaultyEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func allKeys() async throws -> [CacheKey] {
    let number = count.withLock { count in
      count += 1
      return count
    }
    return Array(try await base.allKeys().dropLast(number.isMultiple(of: 100) ? 1 : 0))
  }
}

/// Takes the order of its entries from a table that is rebuilt after many removals.
final class OrdersAnewAfterRemovals: FaultyEngine {
  let base: ReferenceEngine
  private let removals = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func remove(key: CacheKey) async throws {
    removals.withLock { $0 += 1 }
    try await base.remove(key: key)
  }
  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    return removals.withLock { $0 > 300 } ? entries.sorted { $0.key < $1.key } : entries
  }
}

/// Splits its table at a number of entries, and dates moved entries as if they were written.
final class DatesWhatItMoves: FaultyEngine {
  let base: ReferenceEngine
  private let moved = MutexProtected<Date?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    let entries = try await base.readEntries(keys: keys)
    guard try await base.keyCount() > 1_000 else { return entries }
    let date = moved.withLock { moved in
      if let moved { return moved }
      moved = Date()
      return moved ?? Date()
    }
    return entries.map { entry in
      var entry = entry
      entry.updatedAt = max(entry.updatedAt, date)
      return entry
    }
  }
}

/// Uses another structure for many entries, and copies only the later of their two times to it.
struct MovesOneTime: FaultyEngine {
  let base: ReferenceEngine
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    let entries = try await base.readEntries(keys: keys)
    guard try await base.keyCount() > 1_000 else { return entries }
    return entries.map { entry in
      var entry = entry
      entry.createdAt = entry.updatedAt
      return entry
    }
  }
}

/// Its timestamps come from a server whose clock is ahead.
struct HasAServersClock: FaultyEngine {
  let base: ReferenceEngine
  let ahead: TimeInterval
  func createdAt(key: CacheKey) async throws -> Date? {
    try await base.createdAt(key: key).map { $0 + ahead }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try await base.updatedAt(key: key).map { $0 + ahead }
  }
  func readAllEntries() async throws -> [StorageEntry] { timed(try await base.readAllEntries()) }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    timed(try await base.readEntries(keys: keys))
  }
  private func timed(_ entries: [StorageEntry]) -> [StorageEntry] {
    entries.map {
      StorageEntry(
        key: $0.key, data: $0.data, createdAt: $0.createdAt + ahead, updatedAt: $0.updatedAt + ahead)
    }
  }
}

/// Needs some time for each call, as a server does.
struct TakesItsTime: InterceptingEngine {
  let base: ReferenceEngine
  var time = Duration.milliseconds(5)
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    // A request that has been sent cannot be cancelled.
    let time = time
    await Task { try? await Task.sleep(for: time) }.value
    return try await work()
  }
}

/// Performs one call at a time, or one read and one change at a time, in order of arrival.
final class SerializesCalls: InterceptingEngine {
  let base: ReferenceEngine
  private let reads: Places
  private let changes: Places
  init(base: ReferenceEngine, together: Bool) {
    self.base = base
    reads = Places(1)
    changes = together ? reads : Places(1)
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let places = isChange ? changes : reads
    await places.enter()
    defer { places.leave() }
    await Task.yield()
    return try await work()
  }
}

/// Numbers scans with twelve bits, and confuses two scans with the same number.
final class NumbersScans: FaultyEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)
  private let first = MutexProtected<[(key: CacheKey, data: Data)]?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let number = count.withLock { count in
      count += 1
      return count
    }
    if number == 1 << 12, let first = first.withLock({ $0 }) { return first }
    let found = try await base.scan(range, limit: limit)
    if number == 1 { first.withLock { $0 = found } }
    return found
  }
}

/// Treats the transaction after 4,095 others as one that has already been committed.
final class NumbersTransactions: FaultyEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let number = count.withLock { count in
      count += 1
      return count
    }
    return try await withTransaction(lostIf: { number % 4_096 == 0 }, body)
  }
}

/// Returns nothing from scans once more than 8,000 entries have been removed.
final class StopsAtRemovedEntries: FaultyEngine {
  let base: ReferenceEngine
  private let removed = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func remove(keys: [CacheKey]) async throws {
    try await base.remove(keys: keys)
    removed.withLock { $0 += keys.count }
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    if removed.withLock({ $0 }) > 8_000 { return [] }
    return try await base.scan(range, limit: limit)
  }
}
