import Foundation
import StockroomCore

// Correct engines as an outsider might write them, with only the six required methods.

struct MinimalEntry: Codable, Sendable {
  var data: Data
  let createdAt: Date
  var updatedAt: Date
}

/// A dictionary behind a lock.
final class LockedEngine: StorageEngine {
  private let entries = MutexProtected<[CacheKey: MinimalEntry]>([:])

  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    entries.withLock { entries in
      let now = Date()
      // A slice would keep its indices.
      entries[key, default: MinimalEntry(data: Data(), createdAt: now, updatedAt: now)].data = Data(data)
      entries[key]?.updatedAt = now
    }
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

/// A dictionary in an actor. Its reads only throw because of invalid keys.
actor ActorEngine: StorageEngine {
  private var entries: [CacheKey: MinimalEntry] = [:]

  func write(_ data: Data, key: CacheKey) throws {
    try key.validate()
    let now = Date()
    entries[key] = MinimalEntry(data: Data(data), createdAt: entries[key]?.createdAt ?? now, updatedAt: now)
  }

  func read(key: CacheKey) throws -> Data? {
    try key.validate()
    return entries[key]?.data
  }

  func remove(key: CacheKey) throws {
    try key.validate()
    entries[key] = nil
  }

  func allKeys() -> [CacheKey] { Array(entries.keys) }

  func createdAt(key: CacheKey) throws -> Date? {
    try key.validate()
    return entries[key]?.createdAt
  }

  func updatedAt(key: CacheKey) throws -> Date? {
    try key.validate()
    return entries[key]?.updatedAt
  }
}
