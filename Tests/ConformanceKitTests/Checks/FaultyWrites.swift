import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore

// Engines that lose or mix up what is written, and when.

extension FaultyEngineCase {
  static let ofWrites: [FaultyEngineCase] = [
    .init(.w1, "takes entries that it was given before for done") { WritesEntriesOnce(base: $0) },
    .init(.w2, "lets each write be a millisecond later than the one before", also: [.t2]) {
      CountsMilliseconds(base: $0)
    },
    .init(.w1, "shares equal values") { SharesEqualValues(base: $0) },
    .init(.w1, "releases what it keeps") { ReleasesWhatItKeeps(base: $0) },
    .init(.w1, "compares samples of values") { ComparesSamples(base: $0) },
    .init(.w1, "reads stale values") { ReadsStaleValues(base: $0) },
    .init(.w1, "leaves the tail of the old value", also: [.v1, .r3, .c1]) { LeavesTheTail(base: $0) },
    .init(.w1, "remembers that a key was absent", also: [.k2, .c1]) { RemembersAbsence(base: $0) },
    // An overwrite that seems to change nothing is left out.
    .init(.w1, "skips values of the same length", also: [.w2, .r3, .r5, .c1, .c4]) {
      SkipsSameLength(base: $0)
    },
    // A cache with a limit that nobody set.
    .init(.w1, "evicts beyond 10,000 entries") { Evicts(base: $0) },
    .init(.w1, "counts versions in a byte") { CountsVersions(base: $0, upTo: 1 << 8) },
    // The number of variables of a statement has a limit.
    .init(.w1, "writes 999 entries of a batch", also: [.w3, .r5]) { WritesPartOfBatches(base: $0) },
    .init(.w1, "drops a batch of one after a write", also: [.v1, .v2]) { DropsABatchOfOne(base: $0) },
    .init(.w1, "drops the neighbour of an overwritten key", also: [.r3, .r5, .r6, .c1, .c4]) {
      DropsANeighbour(base: $0)
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
    // Of several operations on a key the last counts, to save work.
    .init(.w2, "drops removals before writes", also: [.r6]) { DropsRemovalsBeforeWrites(base: $0) },

    .init(persistent: .w2, "reads the clock in turns of one engine", fault: .datesInItsOwnTurn),

    .init(persistent: .w6, "saves when it is closed", fault: .forgetsUntilClosed),
    .init(persistent: .w6, "does not save removals", fault: .forgetsRemovals, also: [.l2]),
    .init(persistent: .w6, "does not save removeAll", fault: .forgetsRemoveAll, also: [.d2]),
    .init(persistent: .w6, "saves times in whole seconds", fault: .savesWholeSeconds),
    .init(persistent: .w6, "saves 65,536 bytes of a value", fault: .savesLittle),
    .init(
      persistent: .w6, "takes a record of more than 4 MiB for the torn end of its log",
      fault: .takesLongRecordsForTorn),
    .init(persistent: .w6, "forgets the oldest session", fault: .rotatesAway),
  ]
}

/// Answers reads of many from what it once read.
final class ReadsStaleValues: FaultyEngine {
  let base: ReferenceEngine
  private let cache = MutexProtected<[CacheKey: Data]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func read(keys: [CacheKey]) async throws -> [Data] {
    guard keys.count == 1, let key = keys.first else { return try await base.read(keys: keys) }
    let values = try await base.read(keys: keys)
    return cache.withLock { cache in
      if let value = values.first, cache[key] == nil { cache[key] = value }
      return values.isEmpty ? [] : [cache[key]].compactMap { $0 }
    }
  }
}

/// Writes the new value over the beginning of the old one.
struct LeavesTheTail: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    let old = try await base.read(key: key) ?? Data()
    // Small values are enough to show it.
    try await base.write(data + (old.count < 10_000 ? old.dropFirst(data.count) : Data()), key: key)
  }
}

/// Asks the disk for a key once, and takes no for an answer until a batch brings it.
final class RemembersAbsence: FaultyEngine {
  let base: ReferenceEngine
  private let absent = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }
  func read(key: CacheKey) async throws -> Data? {
    if absent.withLock({ $0.contains(key) }) { return nil }
    let value = try await base.read(key: key)
    if value == nil { absent.withLock { _ = $0.insert(key) } }
    return value
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    absent.withLock { $0.subtract(dataAndKeys.map(\.key)) }
  }
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    absent.withLock { $0 = [] }
  }
}

struct SkipsSameLength: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    if try await base.read(key: key)?.count == data.count { return }
    try await base.write(data, key: key)
  }
}

/// Nothing would change but the time.
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

/// For createdAt of a batch once more than for updatedAt.
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

struct Evicts: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    let keys = try await base.allKeys()
    if keys.count > 10_000 { try await base.remove(keys: Array(keys.prefix(keys.count - 10_000))) }
  }
}

/// Numbers the versions of a key with so few bits that it takes one for older than those before it.
final class CountsVersions: FaultyEngine {
  let base: ReferenceEngine
  private let limit: Int
  private let versions = MutexProtected<[CacheKey: Int]>([:])
  init(base: ReferenceEngine, upTo limit: Int) { (self.base, self.limit) = (base, limit) }
  func write(_ data: Data, key: CacheKey) async throws {
    let version = versions.withLock { versions in
      versions[key, default: 0] += 1
      return versions[key, default: 0]
    }
    if version % limit != 0 { try await base.write(data, key: key) }
  }
  func remove(key: CacheKey) async throws {
    try await base.remove(key: key)
    versions.withLock { $0[key] = nil }
  }
  func removeAllData() async throws {
    try await base.removeAllData()
    versions.withLock { $0 = [:] }
  }
}

struct WritesPartOfBatches: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(Array(dataAndKeys.prefix(999)))
  }
}

/// Takes a batch of one for the write that it has just done.
final class DropsABatchOfOne: InterceptingEngine {
  let base: ReferenceEngine
  private let hasJustWritten = MutexProtected(false)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    hasJustWritten.withLock { $0 = false }
    return try await work()
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    hasJustWritten.withLock { $0 = true }
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys { try key.validate() }
    let isDropped = hasJustWritten.withLock { hasJustWritten in
      defer { hasJustWritten = false }
      return hasJustWritten && dataAndKeys.count == 1
    }
    if !isDropped { try await base.write(dataAndKeys) }
  }
}

/// Removes one entry too many when it makes room for a longer value.
struct DropsANeighbour: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    let exists = try await base.keyExists(key)
    try await base.write(data, key: key)
    guard exists, let next = try await base.scan(KeyRange(after: key, upTo: nil), limit: 1).first else {
      return
    }
    try await base.remove(key: next.key)
  }
}

struct RenewsCreatedAt: FaultyEngine {
  let base: ReferenceEngine
  func createdAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }
}

/// Removes the row and inserts another.
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

/// Keeps the first moment of every key for ever.
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

/// Alternates with another clock that is a millisecond late.
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

/// Notes when an entry was last used, and has one column for it.
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

/// Has a time for whatever it is asked about.
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

/// Remembers which entries of another engine it was given, for an import that is begun again.
final class WritesEntriesOnce: FaultyEngine {
  let base: ReferenceEngine
  private let done = MutexProtected<[[StorageEntry]]>([])
  init(base: ReferenceEngine) { self.base = base }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    for entry in entries { try entry.key.validate() }
    let isDone = done.withLock { done in
      if done.contains(entries) { return true }
      done.append(entries)
      return false
    }
    if !isDone { try await base.write(entries.map { ($0.key, $0.data) }) }
  }
}

/// Has a clock of its own, no two times of which are the same millisecond.
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
