import Foundation
import StockroomCore

/// Reads and writes of single keys with a C library, in a transaction that the peer begins and commits.
final class PeerTransaction: StorageTransaction {
  private let get: (CacheKey) throws -> Data?
  private let put: (Data, CacheKey) throws -> Void
  private let delete: (CacheKey) throws -> Void

  init(
    get: @escaping (CacheKey) throws -> Data?, put: @escaping (Data, CacheKey) throws -> Void,
    delete: @escaping (CacheKey) throws -> Void
  ) {
    self.get = get
    self.put = put
    self.delete = delete
  }

  func read(key: CacheKey) throws -> Data? { try get(key) }

  func read(keys: [CacheKey]) throws -> [Data] { try keys.compactMap(get) }

  func keyExists(_ key: CacheKey) throws -> Bool { try get(key) != nil }

  func write(_ data: Data, key: CacheKey) throws { try put(data, key) }

  func remove(key: CacheKey) throws { try delete(key) }

  /// Throws `unsupported`.
  func keyCount() throws -> Int { throw Self.singleKeysOnly }

  /// Throws `unsupported`.
  func allKeys() throws -> [CacheKey] { throw Self.singleKeysOnly }

  /// Throws `unsupported`.
  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    throw Self.singleKeysOnly
  }

  /// Throws `unsupported`.
  func removeAll() throws { throw Self.singleKeysOnly }

  private static let singleKeysOnly = StorageError(
    .unsupported, "Transactions of peers read and write single keys.")
}
