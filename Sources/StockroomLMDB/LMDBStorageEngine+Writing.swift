import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension LMDBStorageEngine {
  /// Writes one entry. O(log N), and the time the disk takes, which writes that come at the same time share.
  public func write(_ data: Data, key: CacheKey) async throws {
    try await perform([.write(data, key: key)])
  }

  /// Writes the entries as one transaction. O(n log N) for n entries.
  public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await perform(dataAndKeys.map { .write($0.data, key: $0.key) })
  }

  /// Removes one entry. O(log N), and the time the disk takes.
  ///
  /// A removal changes copies of pages, as every write does: on a full disk it may throw `diskFull` too.
  public func remove(key: CacheKey) async throws {
    try await perform([.remove(key: key)])
  }

  /// Removes the entries as one transaction. O(n log N) for n keys.
  public func remove(keys: [CacheKey]) async throws {
    try await perform(keys.map { .remove(key: $0) })
  }

  /// Removes everything. O(N) in pages, not in bytes.
  public func removeAllData() async throws {
    try await perform([.removeAll])
  }

  /// Does the operations in order, as one transaction. O(n log N) for n operations.
  public func apply(_ operations: [StorageOperation]) async throws {
    try await perform(operations)
  }

  private func perform(_ operations: [StorageOperation]) async throws {
    try operations.validate(maximumValueSize: Self.maximumValueSize, of: "LMDB")
    try gate.enter()
    defer { gate.leave() }
    if operations.isEmpty { return }
    try await place.committer.submit(LMDBRequest(operations: operations, durability: durability))
  }

  /// LMDB counts the bytes of an item in 32 bits.
  private static let maximumValueSize = 0xFFFF_FFFF - EntryHeader.encodedSize
}
