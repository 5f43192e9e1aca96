public import StockroomCore

extension ExpiringEngine {
  /// A transaction of the engine below, which sees no expired entry. A write reads the old value.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let (result, writeCount) = try await inTransaction { (try body($0), $0.writeCount) }
    await sweeper.entriesWereWritten(writeCount)
    return result
  }

  /// Removes expired entries that are replaced as nobody's change first, so that the feed reports them to a caller who may not know that
  /// they have expired. The body runs again then.
  func inTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (ExpiringTransaction) throws -> Result
  ) async throws -> Result {
    let hasOrigin = ChangeOrigin.current != nil
    do {
      return try await base.withTransaction { [lifetimes] in
        let transaction = ExpiringTransaction(base: $0, lifetimes: lifetimes)
        let result = try body(transaction)
        if hasOrigin, !transaction.replacedExpired.isEmpty {
          throw ReplacedExpired(keys: transaction.replacedExpired)
        }
        return result
      }
    } catch let replaced as ReplacedExpired where hasOrigin {
      if try await sweeper.remove(replaced.keys) == replaced.keys.count {
        return try await inTransaction(body)
      }
      // What has not expired by the clock alone is not removed unless it is replaced: the whole change is reported then.
      return try await withoutChangeOrigin { try await inTransaction(body) }
    }
  }

  /// Performs a change without the origin of the caller, so that the feed reports the change to the caller too: it knows the value
  /// that it has written, but not that the entry is new and has a new position in the order.
  func withoutChangeOrigin<Result>(_ change: () async throws -> Result) async rethrows -> Result {
    try await ChangeOrigin.$current.withValue(nil) { try await change() }
  }
}

/// A transaction has been given up, to be made again once these entries have been removed.
private struct ReplacedExpired: Error {
  let keys: [CacheKey]
}
