public import StockroomCore

extension ExpiringEngine {
  /// Runs a transaction of the engine below, in which expired entries are absent. A write reads the old value.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let (result, writeCount) = try await inTransaction { (try body($0), $0.writeCount) }
    await sweeper.entriesWereWritten(writeCount)
    return result
  }

  /// Runs the body in a transaction. If the caller has a change origin and the body replaces expired entries, these are first
  /// removed in a separate transaction without an origin, so that the feed reports the removal to the caller, who may not know that
  /// they have expired. Then the body runs again.
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
      // An entry that has expired, but not by the clock alone, is only removed when it is replaced. So the whole change is made
      // without the origin, and the feed reports all of it to the caller.
      return try await withoutChangeOrigin { try await inTransaction(body) }
    }
  }

  /// Performs a change without the origin of the caller, so that the feed reports the change to the caller too: it knows the value
  /// that it has written, but not that the entry is new and has a new position in the order.
  func withoutChangeOrigin<Result>(_ change: () async throws -> Result) async rethrows -> Result {
    try await ChangeOrigin.$current.withValue(nil) { try await change() }
  }
}

/// Thrown to abandon a transaction that is repeated once these entries have been removed.
private struct ReplacedExpired: Error {
  let keys: [CacheKey]
}
