#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What the body of ``StorageEngine/withTransaction(_:)`` reads and writes.
///
/// Every read sees what the engine held when the body began and what the body has changed since (rule T2). Nobody else sees
/// the changes before the body has returned and they have been committed, all of them together (rules T1, T3).
///
/// The calls are synchronous, on a thread that may wait. They may be made only until the body returns: after that each throws
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

  /// The entries of a range in ascending byte order of keys, at most `limit` of them. Nil means no limit; zero and less mean no
  /// entries. Throws as ``read(key:)``.
  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)]

  /// Makes `data` the value of the key, whether or not it had one.
  ///
  /// - Throws: ``StorageError`` with code `invalidKey` or `valueTooLarge`, after which the transaction goes on without this write;
  ///   `closed` once the body has returned.
  func write(_ data: Data, key: CacheKey) throws

  /// Writes an entry as another engine had it, with its times: what ``StorageEngine/writeEntries(_:)`` does.
  ///
  /// Default: writes the value, so that the times are those of the transaction. Throws as ``write(_:key:)``.
  func writeEntry(_ entry: StorageEntry) throws

  /// Makes the key absent, whether or not it had a value.
  ///
  /// - Throws: ``StorageError`` with code `invalidKey`, after which the transaction goes on without this removal; `closed` once the
  ///   body has returned.
  func remove(key: CacheKey) throws

  /// Makes every key absent.
  ///
  /// - Throws: ``StorageError`` with code `closed` once the body has returned.
  func removeAll() throws
}

extension StorageTransaction {
  /// Writes the value, with the times of the transaction.
  public func writeEntry(_ entry: StorageEntry) throws { try write(entry.data, key: entry.key) }

  /// Does the operations, one after another.
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
