import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension SQLiteStorageEngine {
  /// O(log N) and one sync, shared with the tasks that write at the same time.
  public func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    try await database.commit([.write(data, key: key)])
  }

  /// O(K log N) for K entries, and one sync.
  public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await apply(dataAndKeys.map { .write($0.data, key: $0.key) })
  }

  /// O(log N) and one sync.
  public func remove(key: CacheKey) async throws {
    try key.validate()
    try await database.commit([.remove(key: key)])
  }

  /// O(K log N) for K keys, and one sync.
  public func remove(keys: [CacheKey]) async throws {
    try await apply(keys.map { .remove(key: $0) })
  }

  /// O(N) and one sync, and another two if a megabyte or more becomes free, which the disk then gets back: at once, or
  /// with the first write after everybody has ended reading what was removed.
  ///
  /// On a full disk it works as long as the log has room for it, which takes a thousandth of the database's size.
  public func removeAllData() async throws {
    try await database.commit([.removeAll])
  }

  /// O(K log N) for K operations, and one sync. A `removeAll` costs O(N).
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    try await database.commit(operations)
  }
}
