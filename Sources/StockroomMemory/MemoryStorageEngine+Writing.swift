import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension MemoryStorageEngine {
  /// O(log N), without copying the value.
  public func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    try commit([.write(data, key: key)])
  }

  /// O(K log N) for K entries.
  public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await apply(dataAndKeys.map { .write($0.data, key: $0.key) })
  }

  /// O(log N).
  public func remove(key: CacheKey) async throws {
    try key.validate()
    try commit([.remove(key: key)])
  }

  /// O(K log N) for K keys.
  public func remove(keys: [CacheKey]) async throws {
    try await apply(keys.map { .remove(key: $0) })
  }

  /// O(N), to give the memory back.
  public func removeAllData() async throws {
    try commit([.removeAll])
  }

  /// O(K log N) for K operations. A `removeAll` costs O(N).
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    try commit(operations)
  }
}
