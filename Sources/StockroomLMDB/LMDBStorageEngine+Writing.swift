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
  /// A removal changes copies of pages, as every write does. For removals on a full disk the engine keeps 64 KiB behind the
  /// database while it is open; if those do not suffice, it throws `diskFull` too.
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

  /// LMDB writes a large value with one call of the system, which writes no more than 2 GiB less a page of memory, of up to
  /// 64 KiB, at a time. The value's first page begins with a header of its own.
  private static let maximumValueSize = (1 << 31) - (1 << 16) - LMDBPage.headerSize - EntryHeader.encodedSize
}
