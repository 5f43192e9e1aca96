import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A transaction of the engine below that counts what its body reads and writes.
final class CountedTransaction: BulkReadingTransaction {
  private let base: any StorageTransaction
  private let counter: TransactionCounter

  init(base: any StorageTransaction, counter: TransactionCounter) {
    (self.base, self.counter) = (base, counter)
  }

  func read(key: CacheKey) throws -> Data? {
    let data = try base.read(key: key)
    counter.add(requested: 1, returned: data == nil ? 0 : 1, bytesRead: data?.count ?? 0)
    return data
  }

  func read(keys: [CacheKey]) throws -> [Data] {
    let values = try base.read(keys: keys)
    counter.add(requested: keys.count, returned: values.count, bytesRead: values.byteCount(of: \.self))
    return values
  }

  func readValues(of keys: [CacheKey]) throws -> [Data?] {
    let values = try base.values(of: keys)
    let found = values.compactMap(\.self)
    counter.add(requested: keys.count, returned: found.count, bytesRead: found.byteCount(of: \.self))
    return values
  }

  func keyExists(_ key: CacheKey) throws -> Bool {
    let exists = try base.keyExists(key)
    counter.add(requested: 1, returned: exists ? 1 : 0)
    return exists
  }

  func keyCount() throws -> Int { try base.keyCount() }

  func allKeys() throws -> [CacheKey] {
    let keys = try base.allKeys()
    counter.add(returned: keys.count)
    return keys
  }

  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    let entries = try base.scan(range, limit: limit)
    counter.add(returned: entries.count, bytesRead: entries.byteCount(of: \.data))
    return entries
  }

  func write(_ data: Data, key: CacheKey) throws {
    try base.write(data, key: key)
    counter.add(requested: 1, bytesWritten: data.count)
  }

  func writeEntry(_ entry: StorageEntry) throws {
    try base.writeEntry(entry)
    counter.add(requested: 1, bytesWritten: entry.data.count)
  }

  func remove(key: CacheKey) throws {
    try base.remove(key: key)
    counter.add(requested: 1)
  }

  func removeAll() throws { try base.removeAll() }
}

/// Counts what the body of a transaction has read and written. Protected by a mutex, since a body may pass the transaction to other
/// threads.
final class TransactionCounter: Sendable {
  private let state = MutexProtected(CallCounts())

  /// The counts of the last run of the body, which is the only one that counts (rule T4).
  var counts: CallCounts { state.withLock { $0 } }

  func reset() { state.withLock { $0 = CallCounts() } }

  func add(requested: Int = 0, returned: Int = 0, bytesRead: Int = 0, bytesWritten: Int = 0) {
    state.withLock { counts in
      counts.entriesRequested += requested
      counts.entriesReturned += returned
      counts.bytesRead += bytesRead
      counts.bytesWritten += bytesWritten
    }
  }
}

extension Sequence {
  /// The total size of all values in bytes. O(N).
  func byteCount(of value: (Element) -> Data) -> Int { reduce(0) { $0 + value($1).count } }
}
