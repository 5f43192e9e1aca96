import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension PersistentCache where Value: VersionedItem {
  /// Stores every value of the namespace that has an older version in the newest one. Expiry stays the same.
  ///
  /// Without this call, a value is stored in the newest version when its key is assigned or stored again.
  ///
  /// Runs beside everything else: values are rewritten in batches of up to 1,000 entries and about 1 MiB, in the order of this
  /// cache's writes, and what others store meanwhile is not touched if the engine has `EngineCapabilities.transactions`. The task may
  /// be cancelled; another call goes on with what is left, since each value says its version. Costs a read of the whole
  /// namespace, and a read and a write of the values that are rewritten.
  ///
  /// - Parameter progress: Called with the number of values of older versions that were looked at, and how many there are.
  /// - Returns: How many have been rewritten, and which could not be.
  /// - Throws: what the engine throws; `CancellationError`. What has been rewritten before stays so.
  @concurrent @discardableResult
  public func rewriteOldVersions(
    progress: (@Sendable (_ done: Int, _ total: Int) -> Void)? = nil
  ) async throws -> VersionRewriting {
    try Task.checkCancellation()
    var result = VersionRewriting()
    guard let storage else { return result }
    let codec = codec
    var keys: [CacheKey] = []
    try await storage.forEachPage { page in
      keys += page.filter { $0.entry.map { codec.isOld($0.value) } ?? false }.map(\.key)
    }
    var done = 0
    while done < keys.count {
      try Task.checkCancellation()
      let rest = keys[done...].prefix(RewritingBatch.keyLimit)
      let batch = try await inOrder { [self] in
        defer { withState { $0.storedSizes = nil } }
        return try await storage.engine.rewrite(rest) { data, key throws(StorageError) in
          try codec.rewritten(entry: data, of: key)
        }
      }
      result.add(batch)
      done += batch.examined
      progress?(done, keys.count)
    }
    return result
  }
}

extension ItemCodec {
  /// As ``rewritten(_:of:)``, for the bytes of a cache's entry. Nil if others have replaced it by something else.
  fileprivate func rewritten(entry data: Data, of key: CacheKey) throws(StorageError) -> Data? {
    guard var entry = try? CacheEntry(data), let value = try rewritten(entry.value, of: key) else {
      return nil
    }
    entry.value = value
    return entry.encoded
  }
}
