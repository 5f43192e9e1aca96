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

  /// Runs the body again if an entry of which the caller may not know that it has expired is replaced: so that the caller hears of it.
  func inTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (ExpiringTransaction) throws -> Result
  ) async throws -> Result {
    let hasOrigin = ChangeOrigin.current != nil
    do {
      return try await base.withTransaction { [lifetimes] in
        let transaction = ExpiringTransaction(base: $0, lifetimes: lifetimes)
        let result = try body(transaction)
        if hasOrigin, transaction.hasReplacedExpired { throw ReplacedExpired() }
        return result
      }
    } catch is ReplacedExpired where hasOrigin {
      return try await asNobodysChange { try await inTransaction(body) }
    }
  }

  /// Calls the engine below such that its feed reports the change to the caller too, who knows what has been written, and not that it is
  /// a new entry with a place of its own in the order.
  func asNobodysChange<Result>(_ change: () async throws -> Result) async rethrows -> Result {
    try await ChangeOrigin.$current.withValue(nil) { try await change() }
  }
}

/// A transaction has been given up, to be made again as nobody's change.
private struct ReplacedExpired: Error {}
