public import Foundation
public import StockroomCore

/// A transaction that forwards every call to another one. Subclasses override the calls that differ.
open class ForwardingTransaction: StorageTransaction {
  /// The transaction that receives the calls.
  public let base: any StorageTransaction

  /// Creates a transaction that forwards its calls to `base`.
  public init(_ base: any StorageTransaction) { self.base = base }

  open func read(key: CacheKey) throws -> Data? { try base.read(key: key) }
  open func read(keys: [CacheKey]) throws -> [Data] { try base.read(keys: keys) }
  open func keyExists(_ key: CacheKey) throws -> Bool { try base.keyExists(key) }
  open func keyCount() throws -> Int { try base.keyCount() }
  open func allKeys() throws -> [CacheKey] { try base.allKeys() }
  open func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    try base.scan(range, limit: limit)
  }
  open func write(_ data: Data, key: CacheKey) throws { try base.write(data, key: key) }
  open func writeEntry(_ entry: StorageEntry) throws { try base.writeEntry(entry) }
  open func remove(key: CacheKey) throws { try base.remove(key: key) }
  open func removeAll() throws { try base.removeAll() }
}
