#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A transaction that reads the values of many keys with one request, which may be a round trip to a server.
package protocol BulkReadingTransaction: StorageTransaction {
  /// The value of each key, or nil if it is absent. Throws as ``StorageTransaction/read(keys:)``.
  func readValues(of keys: [CacheKey]) throws -> [Data?]
}

extension StorageTransaction {
  /// The value of each key, or nil if it is absent: with one request if the transaction supports that,
  /// otherwise one by one. Throws as ``read(keys:)``.
  package func values(of keys: [CacheKey]) throws -> [Data?] {
    if let transaction = self as? any BulkReadingTransaction { return try transaction.readValues(of: keys) }
    try keys.validate()
    return try keys.map { try read(key: $0) }
  }
}
