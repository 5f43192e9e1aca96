import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore

// Engines that lose or confuse writes.

extension FaultyEngineCase {
  static let ofWrites: [FaultyEngineCase] = [
    .init(.w1, "takes entries that it was given before for done") { WritesEntriesOnce(base: $0) },
    .init(.w1, "shares equal values") { SharesEqualValues(base: $0) },
    .init(.w1, "releases what it keeps") { ReleasesWhatItKeeps(base: $0) },
    .init(.w1, "compares samples of values") { ComparesSamples(base: $0) },
    .init(.w1, "reads stale values") { ReadsStaleValues(base: $0) },
    .init(.w1, "leaves the tail of the old value", also: [.v1, .r3, .c1]) { LeavesTheTail(base: $0) },
    .init(.w1, "remembers that a key was absent", also: [.k2, .k3, .c1]) { RemembersAbsence(base: $0) },
    // An overwrite that seems to change nothing is skipped.
    .init(.w1, "skips values of the same length", also: [.k3, .w2, .r3, .r5, .c1, .c4]) {
      SkipsSameLength(base: $0)
    },
    // A cache with a default limit.
    .init(.w1, "evicts beyond 10,000 entries") { Evicts(base: $0) },
    .init(.w1, "counts versions in a byte") { CountsVersions(base: $0, upTo: 1 << 8) },
    // The number of variables of a statement is limited.
    .init(.w1, "writes 999 entries of a batch", also: [.w3, .r5]) { WritesPartOfBatches(base: $0) },
    .init(.w1, "drops a batch of one after a write", also: [.v1, .v2]) { DropsABatchOfOne(base: $0) },
    .init(.w1, "drops the neighbor of an overwritten key", also: [.r3, .r5, .r6, .c1, .c4]) {
      DropsANeighbor(base: $0)
    },

    .init(persistent: .w6, "saves when it is closed", fault: .forgetsUntilClosed),
    .init(persistent: .w6, "does not save removals", fault: .forgetsRemovals, also: [.l2]),
    .init(persistent: .w6, "does not save removeAll", fault: .forgetsRemoveAll, also: [.d2]),
    .init(persistent: .w6, "saves times in whole seconds", fault: .savesWholeSeconds, also: [.w2]),
    .init(persistent: .w6, "saves 65,536 bytes of a value", fault: .savesLittle),
    .init(
      persistent: .w6, "takes a record of more than 4 MiB for the torn end of its log",
      fault: .takesLongRecordsForTorn),
    .init(persistent: .w6, "forgets the oldest session", fault: .rotatesAway),
  ]
}

/// Caches the value that `read(keys:)` returns for a single key.
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
    // Small values are enough to detect it.
    try await base.write(data + (old.count < 10_000 ? old.dropFirst(data.count) : Data()), key: key)
  }
}

/// Reads a key from the disk once, and caches that it is absent until a batch writes it.
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

struct Evicts: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    let keys = try await base.allKeys()
    if keys.count > 10_000 { try await base.remove(keys: Array(keys.prefix(keys.count - 10_000))) }
  }
}

/// Numbers the versions of a key with so few bits that a new version looks older than previous ones.
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

/// Treats a batch with one entry as a repetition of the preceding write.
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

/// Removes the next entry when it overwrites one.
struct DropsANeighbor: FaultyEngine {
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

/// Records the entries that it has imported, in order to skip them in a repeated import.
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
