import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// Each of these waits for one sync at `Durability.full`, which writes of other tasks at the same time share.
extension LevelDBStorageEngine {
  /// Costs one look for the key and an append to the log.
  public func write(_ data: Data, key: CacheKey) async throws {
    try await apply([.write(data, key: key)])
  }

  /// Costs, for each entry, one look for the key and an append to the log.
  public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await apply(dataAndKeys.map { .write($0.data, key: $0.key) })
  }

  /// Costs one look for the key and an append to the log.
  public func remove(key: CacheKey) async throws {
    try await apply([.remove(key: key)])
  }

  /// Costs, for each key, one look for it and an append to the log.
  public func remove(keys: [CacheKey]) async throws {
    try await apply(keys.map { .remove(key: $0) })
  }

  /// Costs an append to the log for each of the N entries. Their room on the disk is given back afterwards, in the
  /// background, in proportion to how much they take up.
  public func removeAllData() async throws {
    try await apply([.removeAll])
  }

  /// Costs, for each operation, what the method of the same name costs.
  public func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate(maximumValueSize: Self.maximumValueSize, of: "LevelDB")
    try gate.enter()
    defer { gate.leave() }
    if operations.isEmpty { return }
    try await committer.submit(operations)
  }

  /// LevelDB counts the bytes of a value in 32 bits, and does not look whether they are enough. Half of that leaves room
  /// for what it puts around it in a table.
  private static let maximumValueSize = 0x7FFF_FFFF - EntryHeader.encodedSize
}
