import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension PersistentCache where Value: VersionedItem {
  /// Rewrites every value of the namespace that has an older version in the newest version. Its expiry stays the same.
  ///
  /// Without this call, a value gets the newest version only when its key is assigned or stored again.
  ///
  /// Runs concurrently with other calls: values are rewritten in batches of up to 1,000 entries and about 1
  /// MiB, in the order of this cache's writes. Concurrent changes by others are preserved if the engine has
  /// `EngineCapabilities.transactions`. The task may be cancelled; another call continues with the remaining
  /// values, since each value contains its version. Costs a read of the whole namespace, and a read and a
  /// write of the values that are rewritten.
  ///
  /// - Parameter progress: Called with the number of values of older versions that have been checked, and
  ///   their total number.
  /// - Returns: The number of rewritten values, and those that could not be rewritten.
  /// - Throws: what the engine throws; `CancellationError`. Batches that were complete before the error remain rewritten.
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
        defer { withState { $0.forgetSizes() } }
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
  /// Like ``rewritten(_:of:)``, for the bytes of a cache's entry. Also returns nil if the bytes are no longer a cache entry, since
  /// others have replaced it.
  fileprivate func rewritten(entry data: Data, of key: CacheKey) throws(StorageError) -> Data? {
    guard var entry = try? CacheEntry(data), let value = try rewritten(entry.value, of: key) else {
      return nil
    }
    entry.value = value
    return entry.encoded
  }
}
