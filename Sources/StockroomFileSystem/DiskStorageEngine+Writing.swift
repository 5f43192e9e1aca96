#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif
public import StockroomCore

// Concurrent calls are committed together and share the syncs.
extension DiskStorageEngine {
  /// Writes the file of one entry. Costs O(1) in N: a new file, one sync, two at `Durability.full`.
  public func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    try await submit([.write(data, key: key)])
  }

  /// Writes the files of all entries through the journal, as one batch. Costs O(batch) and a fixed number of syncs.
  @concurrent public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys { try key.validate() }
    try await submit(dataAndKeys.map { .write($0.data, key: $0.key) })
  }

  /// Removes the file of one entry. Costs O(1) in N: one sync at `Durability.full`.
  public func remove(key: CacheKey) async throws {
    try key.validate()
    try await submit([.remove(key: key)])
  }

  /// Removes the files of all keys through the journal, as one batch. Costs O(batch).
  @concurrent public func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    try await submit(keys.map { .remove(key: $0) })
  }

  /// Removes the file of every entry, and no other file. Costs O(N).
  public func removeAllData() async throws {
    try await submit([.removeAll])
  }

  /// Does the operations in order, through the journal, as one batch. Costs O(batch), O(N) if it removes all.
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    try await submit(operations)
  }

  private func submit(_ operations: [StorageOperation]) async throws {
    try gate.enter()
    defer { gate.leave() }
    guard !operations.isEmpty else { return }
    try await committer.submit(WriteRequest(operations))
  }
}
