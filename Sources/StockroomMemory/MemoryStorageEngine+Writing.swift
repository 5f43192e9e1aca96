import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension MemoryStorageEngine {
  /// O(log N), and a copy of the value.
  public func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    try await commit([.write(data, key: key)])
  }

  /// O(K log N) for K entries, and a copy of the values.
  @concurrent public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys { try key.validate() }
    try await commit(dataAndKeys.map { .write($0.data, key: $0.key) })
  }

  /// O(log N).
  public func remove(key: CacheKey) async throws {
    try key.validate()
    try await commit([.remove(key: key)])
  }

  /// O(K log N) for K keys.
  @concurrent public func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    try await commit(keys.map { .remove(key: $0) })
  }

  /// O(1). Giving the memory back costs O(N), in the background.
  public func removeAllData() async throws {
    try await commit([.removeAll])
  }

  /// O(K log N) for K operations, and a copy of the values.
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    try await commit(operations)
  }
}
