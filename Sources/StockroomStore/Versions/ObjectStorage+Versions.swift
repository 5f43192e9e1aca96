import StockroomCore

extension ObjectStorage where Object: VersionedItem {
  /// Stores those of the objects in the newest version that have an older one.
  ///
  /// Without this call, an object is stored in the newest version when it is stored again.
  ///
  /// Runs beside everything else: objects are rewritten in transactions of up to 1,000 entries and about 1 MiB, and what others
  /// store meanwhile is not touched. The task may be cancelled; another call goes on with what is left, since each entry says its
  /// version. An object keeps its `createdAt(forKey:)`; to others, and to `updatedAt(forKey:)`, rewriting is a change. Costs a read
  /// of every value, and a write of those that are rewritten.
  ///
  /// - Parameters:
  ///   - keys: Where objects of this type are, and no others: bytes that say no version are decoded as the oldest type, and an object of
  ///     another type may be taken for one of that.
  ///   - progress: Called with the number of entries that were looked at, and how many there are.
  /// - Returns: How many have been rewritten, and which could not be.
  /// - Throws: `StorageError` with code `unsupported` if the engine has no `EngineCapabilities.transactions`; what the engine throws;
  ///   `CancellationError`. What has been rewritten before stays so.
  @concurrent @discardableResult
  public func rewriteOldVersions(
    forKeys keys: [CacheKey], progress: (@Sendable (_ done: Int, _ total: Int) -> Void)? = nil
  ) async throws -> VersionRewriting {
    guard storage.capabilities.contains(.transactions) else {
      throw StorageError(
        .unsupported, "Rewriting objects needs transactions, which a \(type(of: storage)) does not have.")
    }
    var result = VersionRewriting()
    var done = 0
    while done < keys.count {
      try Task.checkCancellation()
      let batch = try await storage.rewrite(keys[done...], codec.rewritten)
      result.add(batch)
      done += batch.examined
      progress?(done, keys.count)
    }
    return result
  }
}
