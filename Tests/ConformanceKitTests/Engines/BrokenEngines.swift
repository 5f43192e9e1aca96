import Foundation
import StockroomCore

// One engine for each way to break a rule. Each differs from a correct one in a single respect.

struct AnswersForLongKeys: Exhibit {
  let base: ReferenceEngine
  func read(key: CacheKey) async throws -> Data? {
    key.value.utf8.count > 511 ? nil : try await base.read(key: key)
  }
}

struct ListsLowercaseKeys: Exhibit {
  let base: ReferenceEngine
  func allKeys() async throws -> [CacheKey] {
    try await base.allKeys().map { CacheKey(verbatim: $0.value.lowercased()) }
  }
}

struct ListsHashedKeys: Exhibit {
  let base: ReferenceEngine
  func allKeys() async throws -> [CacheKey] { try await base.allKeys().map { CacheKey($0.value) } }
}

/// Writes a copy of each value to a file that is named like the key.
struct FollowsPaths: Exhibit {
  let base: ReferenceEngine
  let directory: URL
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    if key.value.hasPrefix("../") { try? data.write(to: directory.appending(path: key.value)) }
  }
}

/// Looks for the value in a file that is named like the key.
struct ReadsPaths: Exhibit {
  let base: ReferenceEngine
  let directory: URL
  func read(key: CacheKey) async throws -> Data? {
    if let data = try await base.read(key: key) { return data }
    guard key.value.hasPrefix("../") else { return nil }
    return try? Data(contentsOf: directory.appending(path: key.value))
  }
}

struct TakesEmptyForAbsent: Exhibit {
  let base: ReferenceEngine
  func read(key: CacheKey) async throws -> Data? {
    guard let data = try await base.read(key: key), !data.isEmpty else { return nil }
    return data
  }
}

/// Returns slices of a larger buffer.
struct ReturnsSlices: Exhibit {
  let base: ReferenceEngine
  func readAllData() async throws -> [Data] {
    try await base.readAllData().map { (Data([1, 2, 3]) + $0).dropFirst(3) }
  }
}

/// Answers reads of many from what it once read.
final class ReadsStaleValues: Exhibit {
  let base: ReferenceEngine
  private let cache = Guarded<[CacheKey: Data]>([:])
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
struct LeavesTheTail: Exhibit {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    let old = try await base.read(key: key) ?? Data()
    // Small values are enough to show it.
    try await base.write(data + (old.count < 10_000 ? old.dropFirst(data.count) : Data()), key: key)
  }
}

struct RenewsCreatedAt: Exhibit {
  let base: ReferenceEngine
  func createdAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }
}

struct RoundsToSeconds: Exhibit {
  let base: ReferenceEngine
  func updatedAt(key: CacheKey) async throws -> Date? {
    try await base.updatedAt(key: key).map {
      Date(timeIntervalSince1970: $0.timeIntervalSince1970.rounded(.up))
    }
  }
}

/// Keeps the first moment of every key for ever.
final class NeverRenewsCreatedAt: Exhibit {
  let base: ReferenceEngine
  private let first = Guarded<[CacheKey: Date]>([:])
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

struct FirstEntryWins: Exhibit {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    var seen: Set<CacheKey> = []
    try await base.write(dataAndKeys.filter { seen.insert($0.key).inserted })
  }
}

struct RefusesEmptyBatches: Exhibit {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    if keys.isEmpty { throw StorageError(.io, "There is nothing to remove.") }
    try await base.remove(keys: keys)
  }
}

/// Finds out that a key is invalid when it comes to it.
struct ValidatesOnTheWay: Exhibit {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    if dataAndKeys.allSatisfy({ (1...511).contains($0.key.value.utf8.count) }) {
      return try await base.write(dataAndKeys)
    }
    for (key, data) in dataAndKeys { try await base.write(data, key: key) }
  }
}

/// Claims atomic batches and writes them entry by entry.
struct WritesBatchesInParts: Exhibit {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys { try key.validate() }
    // In a task that is not cancelled, so that each part is written.
    try await Task { [base] in
      for (key, data) in dataAndKeys {
        try await base.write(data, key: key)
        if dataAndKeys.count < 100 { await Task.yield() }
      }
    }.value
  }
}

/// Does the removals of a batch before its writes.
struct RemovesFirst: Exhibit {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    let (removals, writes) = (
      operations.filter { if case .write = $0 { false } else { true } },
      operations.filter { if case .write = $0 { true } else { false } }
    )
    try await base.apply(removals + writes)
  }
}

struct ThrowsForAbsentKeys: Exhibit {
  let base: ReferenceEngine
  func read(key: CacheKey) async throws -> Data? {
    guard let data = try await base.read(key: key) else { throw StorageError(.io, "There is no \(key).") }
    return data
  }
}

struct AnswersInItsOwnOrder: Exhibit {
  let base: ReferenceEngine
  func read(keys: [CacheKey]) async throws -> [Data] { try await base.read(keys: keys.sorted()) }
}

struct AnswersRepeatsOnce: Exhibit {
  let base: ReferenceEngine
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    var seen: Set<CacheKey> = []
    return try await base.readDataAndKeys(keys: keys.filter { seen.insert($0).inserted })
  }
}

struct AnswersAThousandKeys: Exhibit {
  let base: ReferenceEngine
  func read(keys: [CacheKey]) async throws -> [Data] { try await base.read(keys: Array(keys.prefix(1_000))) }
}

struct GivesEqualValuesOnce: Exhibit {
  let base: ReferenceEngine
  func readAllData() async throws -> [Data] { Array(Set(try await base.readAllData())) }
}

/// Claims snapshots and reads key by key.
struct ReadsEverythingInParts: Exhibit {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    var entries: [(key: CacheKey, data: Data)] = []
    for key in try await base.allKeys() {
      if let data = try await base.read(key: key) { entries.append((key, data)) }
      await Task.yield()
    }
    return entries
  }
}

struct SaysNilWhenReadingFails: Exhibit {
  let base: ReferenceEngine
  func readAllData() async throws -> [Data] { (try? await base.readAllData()) ?? [] }
}

struct ScansByCharacters: Exhibit {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let all = try await base.scan(range, limit: nil).sorted { $0.key.value < $1.key.value }
    return Array(all.prefix(max(0, limit ?? .max)))
  }
}

struct ScansFromTheBound: Exhibit {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    var found = try await base.scan(range, limit: limit)
    if let after = range.after, limit == nil, let data = try await base.read(key: after) {
      found.insert((after, data), at: 0)
    }
    return found
  }
}

/// Claims ordered scans and sorts everything each time.
struct SortsForEachScan: Exhibit {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    let all = try await base.readAllDataAndKeys().sorted { $0.key < $1.key }
    return Array(all.filter { range.contains($0.key) }.prefix(max(0, limit ?? .max)))
  }
}

struct ListsEntriesByKey: Exhibit {
  let base: ReferenceEngine
  func readAllEntries() async throws -> [StorageEntry] {
    try await base.readAllEntries().sorted { $0.key < $1.key }
  }
}

struct ListsEntriesByLastWrite: Exhibit {
  let base: ReferenceEngine
  func readAllEntries() async throws -> [StorageEntry] {
    try await base.readAllEntries().sorted { ($0.updatedAt, $0.key) < ($1.updatedAt, $1.key) }
  }
}

struct CannotRemoveAbsentKeys: Exhibit {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    let existing = try await base.keysExist(keys)
    if existing.isEmpty, keys.count > 2 { throw StorageError(.io, "There is nothing to remove.") }
    try await base.remove(keys: keys)
  }
}

struct RemovesTheDirectory: Exhibit {
  let base: ReferenceEngine
  let directory: URL
  func removeAllData() async throws {
    try await base.removeAllData()
    for file in try FileManager.default.contentsOfDirectory(at: directory, includingPropertiesForKeys: nil)
    where file.lastPathComponent != "reference.log" { try FileManager.default.removeItem(at: file) }
  }
}

/// Leaves an entry behind when it removes everything.
struct RemovesAlmostEverything: Exhibit {
  let base: ReferenceEngine
  func removeAllData() async throws {
    let keys = try await base.allKeys()
    try await base.remove(keys: keys.count > 200 ? Array(keys.dropLast()) : keys)
  }
}

struct FindsKeysInItsOwnOrder: Exhibit {
  let base: ReferenceEngine
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] { try await base.keysExist(keys.sorted()) }
}

/// Counts the writes.
final class CountsOverwrites: Exhibit {
  let base: ReferenceEngine
  private let surplus = Guarded(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    let existing = try await base.keysExist(dataAndKeys.map(\.key)).count
    try await base.write(dataAndKeys)
    surplus.withLock { $0 += existing }
  }
  func removeAllData() async throws {
    try await base.removeAllData()
    surplus.withLock { $0 = 0 }
  }
  func keyCount() async throws -> Int { try await base.keyCount() + surplus.withLock { $0 } }
}

/// Reads everything, changes it, and writes everything, with time in between for others to do the same.
final class LosesConcurrentWrites: StorageEngine {
  private let entries = Guarded<[CacheKey: SixMethodEntry]>([:])

  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    var copy = entries.withLock { $0 }
    await Task.yield()
    let now = Date()
    copy[key] = SixMethodEntry(data: data, createdAt: copy[key]?.createdAt ?? now, updatedAt: now)
    entries.withLock { [copy] in $0 = copy }
  }
  func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return entries.withLock { $0[key]?.data }
  }
  func remove(key: CacheKey) async throws {
    try key.validate()
    entries.withLock { $0[key] = nil }
  }
  func allKeys() async throws -> [CacheKey] { entries.withLock { Array($0.keys) } }
  func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return entries.withLock { $0[key]?.createdAt }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return entries.withLock { $0[key]?.updatedAt }
  }
}

/// Notices that it was cancelled when the work is done.
struct ThrowsAfterTheWork: Exhibit {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    try await Task { [base] in try await base.write(data, key: key) }.value
    try Task.checkCancellation()
  }
}

/// Stops in the middle of a batch when it is cancelled.
struct StopsHalfWay: Exhibit {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    if !Task.isCancelled { return try await base.remove(keys: keys) }
    try await Task { [base] in try await base.remove(keys: Array(keys.prefix(keys.count / 2))) }.value
    throw CancellationError()
  }
}

/// Gives nothing to a reader that was cancelled.
struct GivesUpReading: Exhibit {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    Task.isCancelled ? [] : try await base.readAllDataAndKeys()
  }
}

/// Waits on the thread of the caller.
struct BlocksTheCaller: Exhibit {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    usleep(10_000)
  }
}

/// Reports less than the suite claims.
struct KeepsQuiet: Exhibit {
  let base: ReferenceEngine
  var silence: EngineCapabilities
  var capabilities: EngineCapabilities { base.capabilities.subtracting(silence) }
}

/// Never answers one question.
struct Hangs: Exhibit {
  let base: ReferenceEngine
  func keyCount() async throws -> Int {
    await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
    return 0
  }
}
