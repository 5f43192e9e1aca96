import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that only fail in certain sequences of calls.

// MARK: - Batches

/// Loses an overwrite if something was removed before it in the same batch.
struct ForgetsOverwritesAfterRemovals: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    let old = Set(try await base.allKeys())
    var hasRemoved = false
    var kept: [StorageOperation] = []
    for operation in operations {
      if case .write(_, let key) = operation, hasRemoved, old.contains(key) { continue }
      if case .remove = operation { hasRemoved = true }
      kept.append(operation)
    }
    try await base.apply(kept)
  }
}

/// `removeAll` within a batch only removes entries from before the batch.
struct SparesTheBatch: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    let old = try await base.allKeys()
    try await base.apply(
      operations.flatMap { operation in
        operation == .removeAll ? old.map { .remove(key: $0) } : [operation]
      })
  }
}

/// Skips a removal right before a write of the same key.
struct SkipsRemovalsBeforeWrites: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    var kept: [StorageOperation] = []
    for operation in operations {
      if case .write(_, let key) = operation, kept.last == .remove(key: key) { kept.removeLast() }
      kept.append(operation)
    }
    try await base.apply(kept)
  }
}

/// Writes the longest of several entries for a key.
struct LongestEntryWins: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    let longest = Dictionary(dataAndKeys.map { ($0.key, $0.data) }) { $0.count > $1.count ? $0 : $1 }
    try await base.write(dataAndKeys.map { ($0.key, longest[$0.key] ?? $0.data) })
  }
}

/// Treats an empty value in a batch as a removal.
struct RemovesEmptyValues: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.apply(
      dataAndKeys.map { $0.data.isEmpty ? .remove(key: $0.key) : .write($0.data, key: $0.key) })
  }
}

/// Removes the keys before the invalid one.
struct RemovesUpToTheInvalidKey: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    for key in keys { try await base.remove(key: key) }
  }
}

/// Removes none of the keys if one is absent.
struct RemovesAllOrNone: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    if try await base.keysExist(keys).count == keys.count { try await base.remove(keys: keys) }
  }
}

/// Cannot remove an entry whose value is empty.
struct KeepsEmptyEntries: FaultyEngine {
  let base: ReferenceEngine
  func remove(key: CacheKey) async throws {
    if try await base.read(key: key) != Data() { try await base.remove(key: key) }
  }
}

// MARK: - Caches

/// Of keys that begin with the same 400 bytes, finds the first one that was used.
final class FirstKeys: Sendable {
  private let keys = MutexProtected<[String: String]>([:])
  func first(like key: String) -> String {
    let beginning = String(decoding: key.utf8.prefix(400), as: UTF8.self)
    guard key.utf8.count > 400 else { return key }
    return keys.withLock { keys in
      keys[beginning] = keys[beginning] ?? key
      return keys[beginning] ?? key
    }
  }
}

/// Counts keys while writing, and counts a key twice that occurs twice in a batch.
final class CountsRepeats: FaultyEngine {
  let base: ReferenceEngine
  private let surplus = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    let before = try await base.keyCount()
    try await base.write(dataAndKeys)
    let isNew = try await base.keyCount() > before
    let repeats = dataAndKeys.count - Set(dataAndKeys.map(\.key)).count
    surplus.withLock { $0 += isNew ? repeats : 0 }
  }
  func removeAllData() async throws {
    try await base.removeAllData()
    surplus.withLock { $0 = 0 }
  }
  func keyCount() async throws -> Int { try await base.keyCount() + surplus.withLock { $0 } }
}

/// Caches reads, and invalidates an entry after each change of it except `removeAllData()`.
final class ReadsWhatWasRemoved: FaultyEngine {
  let base: ReferenceEngine
  private let cache = MutexProtected<[CacheKey: Data]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func read(key: CacheKey) async throws -> Data? {
    if let data = cache.withLock({ $0[key] }) { return data }
    let data = try await base.read(key: key)
    cache.withLock { $0[key] = data }
    return data
  }
  func write(_ data: Data, key: CacheKey) async throws { try await apply([.write(data, key: key)]) }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await apply(dataAndKeys.map { .write($0.data, key: $0.key) })
  }
  func remove(key: CacheKey) async throws { try await apply([.remove(key: key)]) }
  func remove(keys: [CacheKey]) async throws { try await apply(keys.map { .remove(key: $0) }) }
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    cache.withLock { cache in
      for operation in operations {
        switch operation {
        case .write(_, let key), .remove(let key): cache[key] = nil
        case .removeAll: cache = [:]
        }
      }
    }
  }
}

/// Writes nothing if the entry already has the value.
struct SkipsEqualValues: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    if try await base.read(key: key) != data { try await base.write(data, key: key) }
  }
}

// MARK: - Results

/// Lists a key twice that was written twice in a batch, while it exists.
final class ListsRepeats: FaultyEngine {
  let base: ReferenceEngine
  private let twice = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    let repeated = Dictionary(grouping: dataAndKeys.map(\.key)) { $0 }.filter { $0.value.count > 1 }
    twice.withLock { $0.formUnion(repeated.keys) }
  }
  func allKeys() async throws -> [CacheKey] {
    let keys = try await base.allKeys()
    let twice = twice.withLock { $0 }
    return keys + keys.filter(twice.contains)
  }
}

/// Returns an entry only once if its key occurs twice in a row in the request.
struct AnswersNeighborsOnce: FaultyEngine {
  let base: ReferenceEngine
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    let found = try await base.readDataAndKeys(keys: keys)
    return found.enumerated().filter { $0 == 0 || found[$0 - 1].key != $1.key }.map(\.element)
  }
}

/// Counts the lower bound of a scan towards the limit.
struct CountsTheBound: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    guard let after = range.after, let limit, limit > 1, try await base.keyExists(after) else {
      return try await base.scan(range, limit: limit)
    }
    return try await base.scan(range, limit: limit - 1)
  }
}

/// Leaves out the first entry of a scan that has both a prefix and a lower bound.
struct SkipsTwice: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let found = try await base.scan(range, limit: limit)
    return range.prefix != nil && range.after != nil ? Array(found.dropFirst()) : found
  }
}

/// Returns slices if values are large.
struct GivesSlicesOfLargeValues: FaultyEngine {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await base.readAllDataAndKeys().map {
      ($0.key, $0.data.count > 4_000 ? (Data([0]) + $0.data).dropFirst() : $0.data)
    }
  }
}

/// Limits the number of characters of keys instead of the number of bytes.
struct CountsCharacters: FaultyEngine {
  let base: ReferenceEngine
  func keyExists(_ key: CacheKey) async throws -> Bool {
    if (1...CacheKey.maximumLength).contains(key.value.count), key.value.utf8.count > 511 { return false }
    return try await base.keyExists(key)
  }
}

/// A batch does not update the time of an entry that it overwrites.
final class FreezesTimesInBatches: FaultyEngine {
  let base: ReferenceEngine
  private let frozen = MutexProtected<[CacheKey: Date]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    frozen.withLock { $0[key] = nil }
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    var old: [CacheKey: Date] = [:]
    if dataAndKeys.allSatisfy({ !$0.key.value.isEmpty && $0.key.value.utf8.count < 512 }) {
      for (key, _) in dataAndKeys { old[key] = try await updatedAt(key: key) }
    }
    try await base.write(dataAndKeys)
    frozen.withLock { $0.merge(old) { $1 } }
  }
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    frozen.withLock { $0 = [:] }
  }
  func remove(key: CacheKey) async throws { try await apply([.remove(key: key)]) }
  func remove(keys: [CacheKey]) async throws { try await apply(keys.map { .remove(key: $0) }) }
  func removeAllData() async throws { try await apply([.removeAll]) }
  func updatedAt(key: CacheKey) async throws -> Date? {
    let date = try await base.updatedAt(key: key)
    return date == nil ? nil : frozen.withLock { $0[key] } ?? date
  }
}

/// Returns a wrong number of keys from the first call with the same memory.
struct GoesWrongOnce: FaultyEngine {
  final class Memory: Sendable {
    private let isFresh = MutexProtected(true)
    /// Whether this is the first call.
    func begin() -> Bool {
      isFresh.withLock { isFresh in
        defer { isFresh = false }
        return isFresh
      }
    }
  }

  let base: ReferenceEngine
  let memory: Memory
  func keyCount() async throws -> Int { try await base.keyCount() + (memory.begin() ? 1 : 0) }
}

// MARK: - Reopening

/// When it is opened, sets the times of existing entries to the current time.
struct RenewsTimesWhenOpened: FaultyEngine {
  let base: ReferenceEngine
  private let opened = Date()
  init(base: ReferenceEngine) { self.base = base }
  func createdAt(key: CacheKey) async throws -> Date? {
    try await base.createdAt(key: key).map { max($0, opened) }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try await base.updatedAt(key: key).map { max($0, opened) }
  }
  func readAllEntries() async throws -> [StorageEntry] {
    try await base.readAllEntries().map {
      StorageEntry(
        key: $0.key, data: $0.data, createdAt: max($0.createdAt, opened), updatedAt: max($0.updatedAt, opened)
      )
    }
  }
}

/// Sorts entries by their keys when it is opened.
struct ForgetsTheOrder: FaultyEngine {
  let base: ReferenceEngine
  private let opened = Date()
  init(base: ReferenceEngine) { self.base = base }
  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    return entries.filter { $0.createdAt < opened }.sorted { $0.key < $1.key }
      + entries.filter { $0.createdAt >= opened }
  }
}

/// Does not load empty values when it is opened.
struct ForgetsEmptyValues: FaultyEngine {
  let base: ReferenceEngine
  private let opened = Date()
  init(base: ReferenceEngine) { self.base = base }
  func read(key: CacheKey) async throws -> Data? {
    guard let data = try await base.read(key: key), data.isEmpty else { return try await base.read(key: key) }
    return try await base.updatedAt(key: key) ?? opened < opened ? nil : data
  }
}
