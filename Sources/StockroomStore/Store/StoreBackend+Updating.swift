import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// Changes that depend on the stored item (rule S10).

/// The body of a transaction has thrown, so that nothing has happened (rule T3).
struct AbandonedTransaction: Error {
  /// The reason why the change could not be made.
  let cause: any Error
}

extension StoreBackend {
  var hasTransactions: Bool { engine?.capabilities.contains(.transactions) ?? false }

  /// Reads and writes in one transaction of the engine, together with the other changes of the group.
  ///
  /// - Returns: For each change, what was done or the reason why it was not.
  /// - Throws: `AbandonedTransaction` if a change threw that may have been made in part; otherwise what the
  ///   engine threw.
  func commitAsTransaction(
    _ batches: [Result<Batch, any Error>]
  ) async throws -> [Result<[KeyedStep<Item>], any Error>] {
    guard let engine else { return batches.map { $0.map(\.steps) } }
    let isAbandoned = MutexProtected(false)
    do {
      return try await asOrigin {
        try await engine.withTransaction { transaction in
          isAbandoned.withLock { $0 = false }
          return try batches.map { batch in
            do {
              return .success(try perform(batch.get(), in: transaction))
            } catch {
              guard case .success(let batch) = batch, batch.mayBeDoneInPart(after: error) else {
                return .failure(error)
              }
              isAbandoned.withLock { $0 = true }
              throw error
            }
          }
        }
      }
    } catch {
      throw isAbandoned.withLock { $0 } ? AbandonedTransaction(cause: error) : error
    }
  }

  private func perform(_ batch: Batch, in transaction: any StorageTransaction) throws -> [KeyedStep<Item>] {
    if let rewriting = batch.rewriting { return try perform(rewriting, in: transaction) }
    guard let update = batch.update else {
      try transaction.apply(batch.operations, keepingNewerThan: keepsNewer ? codec.version : nil)
      return batch.steps
    }
    let result = try self.batch(for: update, stored: transaction.read(key: update.key))
    try transaction.apply(result.operations)
    return result.steps
  }

  /// The change of an item, as stored in the engine. If the engine has no transactions, nobody else may write
  /// in the meantime.
  func batch(for update: StoreUpdate<Item>, stored: Data?) throws -> Batch {
    update.result.withLock { $0 = nil }
    guard let stored else { return Batch() }
    var item = try decoded(stored, of: update.key)
    let before = identifier(item)
    try verify(CacheKey(identifier: before), in: update.key)
    // It may be another item with the same hash.
    guard before.utf8.elementsEqual(update.key.rawValue.utf8) else { return Batch() }
    try update.change(&item)
    let after = identifier(item)
    guard after.utf8.elementsEqual(before.utf8) else {
      throw StorageError(
        .unsupported,
        "An update must not change the identifier of an item: it was \(before.prefix(40).debugDescription) and became "
          + "\(after.prefix(40).debugDescription). Remove the item and insert the other one in a chain.")
    }
    let key = CacheKey(identifier: after)
    let data = try codec.encode(item, for: key)
    let changed = item
    update.result.withLock { $0 = changed }
    return Batch(steps: [.insert([(key, item)])], operations: [.write(data, key: key)])
  }
}
