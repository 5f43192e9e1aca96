import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines whose createdAt and updatedAt are wrong, or change when they should not.

extension FaultyEngineCase {
  static let ofTimes: [FaultyEngineCase] = [
    .init(.w2, "lets each write be a millisecond later than the one before", also: [.t2]) {
      CountsMilliseconds(base: $0)
    },
    .init(.w2, "skips values that are there already") { SkipsUnchangedValues(base: $0) },
    .init(.w2, "reads the clock twice in batches") { ReadsTheClockTwice(base: $0) },
    .init(.w2, "renews createdAt with every write") { RenewsCreatedAt(base: $0) },
    .init(.w2, "renews createdAt in batches", also: [.r6]) { ReplacesInBatches(base: $0) },
    .init(.w2, "rounds times to seconds") { RoundsToSeconds(base: $0) },
    .init(.w2, "never renews createdAt") { NeverRenewsCreatedAt(base: $0) },
    .init(.w2, "has the times of the table") { HasTheTimesOfTheTable(base: $0) },
    .init(.w2, "never changes updatedAt") { NeverChangesUpdatedAt(base: $0) },
    .init(.w2, "moves updatedAt back") { MovesUpdatedAtBack(base: $0) },
    .init(.w2, "changes updatedAt with every read") { ChangesUpdatedAtWithReads(base: $0) },
    .init(.w2, "confuses 1970 and 2001") { ConfusesEpochs(base: $0) },
    .init(.w2, "lists entries with other times") { ListsEntriesWithOtherTimes(base: $0) },
    .init(.w2, "has times of absent keys", also: [.k2, .k4, .r1]) {
      HasTimesOfAbsentKeys(base: $0)
    },
    // To save work, removals before writes of the same key are skipped.
    .init(.w2, "drops removals before writes", also: [.r6]) { DropsRemovalsBeforeWrites(base: $0) },

    .init(persistent: .w2, "reads the clock in turns of one engine", fault: .datesInItsOwnTurn),
  ]
}

/// Skips writes that would only change the time.
struct SkipsUnchangedValues: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    if try await base.read(key: key) != data { try await base.write(data, key: key) }
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await apply(dataAndKeys.map { .write($0.data, key: $0.key) })
  }
  func apply(_ operations: [StorageOperation]) async throws {
    if operations.count == 1, case .write(let data, let key) = operations[0],
      try await base.read(key: key) == data
    {
      return
    }
    try await base.apply(operations)
  }
}

/// For a batch, reads the clock once for updatedAt and again for createdAt.
final class ReadsTheClockTwice: FaultyEngine {
  let base: ReferenceEngine
  private let ofBatches = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    ofBatches.withLock { $0.formUnion(dataAndKeys.map(\.key)) }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    let isOfBatch = ofBatches.withLock { $0.contains(key) }
    return try await base.updatedAt(key: key).map { $0.addingTimeInterval(isOfBatch ? -0.000_1 : 0) }
  }
  func readAllEntries() async throws -> [StorageEntry] {
    var entries = try await base.readAllEntries()
    for index in entries.indices {
      entries[index].updatedAt = try await updatedAt(key: entries[index].key) ?? entries[index].updatedAt
    }
    return entries
  }
}

struct RenewsCreatedAt: FaultyEngine {
  let base: ReferenceEngine
  func createdAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }
}

/// Deletes the row and inserts another.
struct ReplacesInBatches: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.apply(dataAndKeys.flatMap { [.remove(key: $0.key), .write($0.data, key: $0.key)] })
  }
}

struct RoundsToSeconds: FaultyEngine {
  let base: ReferenceEngine
  func updatedAt(key: CacheKey) async throws -> Date? {
    try await base.updatedAt(key: key).map {
      Date(timeIntervalSince1970: $0.timeIntervalSince1970.rounded(.up))
    }
  }
}

/// Keeps the first creation time of every key forever.
final class NeverRenewsCreatedAt: FaultyEngine {
  let base: ReferenceEngine
  private let first = MutexProtected<[CacheKey: Date]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func createdAt(key: CacheKey) async throws -> Date? {
    guard let date = try await base.createdAt(key: key) else { return nil }
    return first.withLock { first in
      first[key] = first[key] ?? date
      return first[key]
    }
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    _ = try await createdAt(key: key)
  }
}

struct HasTheTimesOfTheTable: FaultyEngine {
  let base: ReferenceEngine
  let made = Date()
  func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key).map { _ in made } }
}

struct NeverChangesUpdatedAt: FaultyEngine {
  let base: ReferenceEngine
  func updatedAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key) }
}

/// Alternates with another clock that is a millisecond behind.
final class MovesUpdatedAtBack: FaultyEngine {
  let base: ReferenceEngine
  private let writes = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    writes.withLock { $0 += 1 }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    let isLate = writes.withLock { $0.isMultiple(of: 2) }
    return try await base.updatedAt(key: key).map { $0.addingTimeInterval(isLate ? -0.001 : 0) }
  }
}

/// Records the last read of an entry as its `updatedAt`.
final class ChangesUpdatedAtWithReads: FaultyEngine {
  let base: ReferenceEngine
  private let uses = MutexProtected<[CacheKey: Date]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func read(key: CacheKey) async throws -> Data? {
    let value = try await base.read(key: key)
    uses.withLock { $0[key] = Date() }
    return value
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    let use = uses.withLock { $0[key] }
    return try await base.updatedAt(key: key).map { max($0, use ?? $0) }
  }
}

struct ConfusesEpochs: FaultyEngine {
  let base: ReferenceEngine
  func createdAt(key: CacheKey) async throws -> Date? {
    try await base.createdAt(key: key).map { Date(timeIntervalSince1970: $0.timeIntervalSinceReferenceDate) }
  }
}

struct ListsEntriesWithOtherTimes: FaultyEngine {
  let base: ReferenceEngine
  func readAllEntries() async throws -> [StorageEntry] {
    try await base.readAllEntries().map { entry in
      var entry = entry
      entry.updatedAt = entry.createdAt
      return entry
    }
  }
}

/// Returns a time for any key.
struct HasTimesOfAbsentKeys: FaultyEngine {
  let base: ReferenceEngine
  func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) ?? .distantPast }
}

struct DropsRemovalsBeforeWrites: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    let isNeeded = operations.enumerated().map { index, operation in
      guard case .remove(let key) = operation else { return true }
      return !operations.dropFirst(index).contains { if case .write(_, key) = $0 { true } else { false } }
    }
    try await base.apply(zip(operations, isNeeded).filter(\.1).map(\.0))
  }
}

/// Has its own clock, which never returns the same millisecond twice.
final class CountsMilliseconds: FaultyEngine {
  let base: ReferenceEngine
  private let state = MutexProtected((last: Date.distantPast, dates: [CacheKey: Date]()))
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    state.withLock { state in
      state.last = max(Date(), state.last + 0.001)
      state.dates[key] = state.last
    }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    guard let date = try await base.updatedAt(key: key) else { return nil }
    return max(date, state.withLock { $0.dates[key] } ?? date)
  }
}
