import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that keep metadata beside entries, and change it some time before or after the entries.

/// Reads the creation time of a key, writes, and stores the time that it has read, despite removals in between.
final class KeepsOldDates: FaultyEngine {
  let base: ReferenceEngine
  private let created = MutexProtected<[CacheKey: Date]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    let old = try await createdAt(key: key)
    for _ in 0..<Int.random(in: 3...20) { await Task.yield() }
    try await base.write(data, key: key)
    created.withLock { $0[key] = old }
  }
  func remove(key: CacheKey) async throws { try await remove(keys: [key]) }
  func remove(keys: [CacheKey]) async throws {
    // Long enough for others to read.
    await Task.yield()
    try await base.remove(keys: keys)
    created.withLock { created in for key in keys { created[key] = nil } }
  }
  func removeAllData() async throws {
    await Task.yield()
    try await base.removeAllData()
    created.withLock { $0 = [:] }
  }
  func createdAt(key: CacheKey) async throws -> Date? {
    guard let date = try await base.createdAt(key: key) else { return nil }
    return created.withLock { $0[key] } ?? date
  }
}

/// Has an index of its keys, which it clears some time after the entries.
final class ClearsItsIndexLate: FaultyBatchEngine {
  let base: ReferenceEngine
  private let index = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }
  func removeAllData() async throws {
    try await base.removeAllData()
    // Long enough for others to write.
    for _ in 0..<10 { await Task.yield() }
    index.withLock { $0 = [] }
  }
  func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    try index.withLock { index in
      try base.commit(operations)
      for operation in operations {
        switch operation {
        case .write(_, let key): index.insert(key)
        case .remove(let key): index.remove(key)
        case .removeAll: index = []
        }
      }
    }
  }
  func allKeys() async throws -> [CacheKey] {
    _ = try await base.keyCount()
    return index.withLock { Array($0) }
  }
}

/// Checks whether an entry is new, and sets createdAt after writing it, although others may have done both meanwhile.
final class DatesEachFirstWrite: FaultyEngine {
  let base: ReferenceEngine
  private let created = MutexProtected<[CacheKey: Date]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    let isNew = try await base.read(key: key) == nil
    for _ in 0..<Int.random(in: 1...12) { await Task.yield() }
    try await base.write(data, key: key)
    guard isNew, let now = try await base.updatedAt(key: key) else { return }
    created.withLock { $0[key] = now }
  }
  func remove(key: CacheKey) async throws { try await remove(keys: [key]) }
  func remove(keys: [CacheKey]) async throws {
    try await base.remove(keys: keys)
    created.withLock { created in for key in keys { created[key] = nil } }
  }
  func removeAllData() async throws {
    try await base.removeAllData()
    created.withLock { $0 = [:] }
  }
  func createdAt(key: CacheKey) async throws -> Date? {
    guard let date = try await base.createdAt(key: key) else { return nil }
    return created.withLock { $0[key] } ?? date
  }
}

/// Combines concurrent reads of times into one, even for different keys.
final class GivesOneTimeToAll: FaultyEngine {
  let base: ReferenceEngine
  private let groups = GroupedCalls<CacheKey, Date?>()
  init(base: ReferenceEngine) { self.base = base }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try await groups.call(key) { [base] keys in
      do {
        let date = try await base.updatedAt(key: keys[0])
        return keys.map { _ in .success(date) }
      } catch {
        return keys.map { _ in .failure(error) }
      }
    }
  }
}
