import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A transaction of the engine below that removes from the cache what its body changes.
final class CachedTransaction: BulkReadingTransaction {
  private let base: any StorageTransaction
  private let cache: CachedValues
  private let change: CachedValues.Change

  init(base: any StorageTransaction, cache: CachedValues, change: CachedValues.Change) {
    (self.base, self.cache, self.change) = (base, cache, change)
  }

  func read(key: CacheKey) throws -> Data? { try base.read(key: key) }

  func read(keys: [CacheKey]) throws -> [Data] { try base.read(keys: keys) }

  func readValues(of keys: [CacheKey]) throws -> [Data?] { try base.values(of: keys) }

  func keyExists(_ key: CacheKey) throws -> Bool { try base.keyExists(key) }

  func keyCount() throws -> Int { try base.keyCount() }

  func allKeys() throws -> [CacheKey] { try base.allKeys() }

  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    try base.scan(range, limit: limit)
  }

  func write(_ data: Data, key: CacheKey) throws {
    cache.begin(change, of: [key])
    try base.write(data, key: key)
  }

  func writeEntry(_ entry: StorageEntry) throws {
    cache.begin(change, of: [entry.key])
    try base.writeEntry(entry)
  }

  func remove(key: CacheKey) throws {
    cache.begin(change, of: [key])
    try base.remove(key: key)
  }

  func removeAll() throws {
    cache.begin(change, everything: true)
    try base.removeAll()
  }
}
