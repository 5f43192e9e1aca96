import StockroomCore

extension ObjectStorage where Object: VersionedItem {
  /// Rewrites the objects that are stored in an older version in the newest one.
  ///
  /// Without this call, an object gets the newest version only when it is stored again.
  ///
  /// Runs concurrently with other calls: objects are rewritten in transactions of up to 1,000 entries and about 1 MiB, and
  /// concurrent changes are preserved. The task may be cancelled; another call continues with the remaining objects, since
  /// each entry contains its version. An object keeps its `createdAt(forKey:)`, but gets a new `updatedAt(forKey:)`, and
  /// the engine's change feed reports it. Costs a read of every value, and a write of every rewritten one.
  ///
  /// - Parameters:
  ///   - keys: Keys of objects of this type only: bytes without a version are decoded as the oldest type, and
  ///     an object of another type may be mistaken for one of that type.
  ///   - progress: Called with the number of entries that have been checked, and their total number.
  /// - Returns: The number of rewritten objects, and those that could not be rewritten.
  /// - Throws: `StorageError` with code `unsupported` if the engine has no `EngineCapabilities.transactions`; what the
  ///   engine throws; `CancellationError`. Batches that were complete before the error remain rewritten.
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
