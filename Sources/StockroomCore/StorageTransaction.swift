#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Reads and writes entries in the body of ``StorageEngine/withTransaction(_:)``.
///
/// Every read sees the entries as they were when the body began, with the changes that the body has made since (rule T2). The
/// changes become visible to others together, when they are committed after the body has returned (rules T1, T3).
///
/// The calls are synchronous and run on a thread that may block. Once the body has returned, each of them throws
/// ``StorageError`` with code `closed` (rule T4).
public protocol StorageTransaction: AnyObject {
  /// The value of the key, or nil if it is absent.
  ///
  /// - Throws: as ``StorageEngine/read(key:)``.
  func read(key: CacheKey) throws -> Data?

  /// The values of the keys that exist, in the order of the request, repeats included. Throws as ``read(key:)``.
  func read(keys: [CacheKey]) throws -> [Data]

  /// Whether there is an entry under the key. Throws as ``read(key:)``.
  func keyExists(_ key: CacheKey) throws -> Bool

  /// The number of entries. Throws as ``read(key:)``.
  func keyCount() throws -> Int

  /// Every key, once, in no particular order. Throws as ``read(key:)``.
  func allKeys() throws -> [CacheKey]

  /// The entries of a range in ascending byte order of keys, at most `limit` of them. A limit of nil means no limit; zero or
  /// less means no entries. Throws as ``read(key:)``.
  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)]

  /// Stores `data` under the key, replacing any existing value.
  ///
  /// - Throws: ``StorageError`` with code `invalidKey` or `valueTooLarge`, after which the transaction can continue without this
  ///   write; `closed` once the body has returned.
  func write(_ data: Data, key: CacheKey) throws

  /// Writes an entry together with its timestamps, as ``StorageEngine/writeEntries(_:)`` does.
  ///
  /// Default: writes the value with the time of the transaction. Throws as ``write(_:key:)``.
  func writeEntry(_ entry: StorageEntry) throws

  /// Removes the entry under the key, if there is one.
  ///
  /// - Throws: ``StorageError`` with code `invalidKey`, after which the transaction can continue without this removal; `closed`
  ///   once the body has returned.
  func remove(key: CacheKey) throws

  /// Removes all entries.
  ///
  /// - Throws: ``StorageError`` with code `closed` once the body has returned.
  func removeAll() throws
}

extension StorageTransaction {
  /// Writes the value with the time of the transaction.
  public func writeEntry(_ entry: StorageEntry) throws { try write(entry.data, key: entry.key) }

  /// Performs the operations, one after another.
  package func apply(_ operations: [StorageOperation]) throws {
    for operation in operations {
      switch operation {
      case .write(let data, let key): try write(data, key: key)
      case .remove(let key): try remove(key: key)
      case .removeAll: try removeAll()
      }
    }
  }
}
