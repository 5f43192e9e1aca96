import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// Changes that depend on the stored item (rule S10).

/// Thrown if the body of a transaction threw, so that the transaction has changed nothing (rule T3).
struct AbandonedTransaction: Error {
  /// The reason why the change could not be made.
  let cause: any Error
}

extension StoreBackend {
  var hasTransactions: Bool { engine?.capabilities.contains(.transactions) ?? false }

  /// Reads and writes in one transaction of the engine, together with the other changes of the group.
  ///
  /// - Returns: For each change, the batch that was applied, or the error because of which none was.
  /// - Throws: `AbandonedTransaction` if a change that may have been applied in part threw; otherwise what the engine threw.
  func commitAsTransaction(
    _ batches: [Result<Batch, any Error>]
  ) async throws -> [Result<Batch, any Error>] {
    guard let engine else { return batches }
    let isAbandoned = MutexProtected(false)
    do {
      return try await asOrigin {
        try await engine.withTransaction { transaction in
          isAbandoned.withLock { $0 = false }
          return try batches.map { batch in
            var begun: Batch?
            do {
              return .success(try perform(batch.get(), in: transaction, &begun))
            } catch {
              guard let begun, begun.mayBeDoneInPart(after: error) else { return .failure(error) }
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

  /// - Parameter begun: Set to the batch before any of it is written.
  /// - Returns: The batch that has been applied.
  private func perform(
    _ batch: Batch, in transaction: any StorageTransaction, _ begun: inout Batch?
  ) throws -> Batch {
    if let rewriting = batch.rewriting {
      begun = batch
      return try perform(rewriting, in: transaction)
    }
    guard let update = batch.update else {
      begun = batch
      try transaction.apply(batch.operations, keepingNewerThan: keepsNewer ? codec.version : nil)
      return batch
    }
    let result = try self.batch(for: update, stored: transaction.read(key: update.key))
    begun = result
    try transaction.apply(result.operations)
    return result
  }

  /// The batch for a change of an item, whose stored bytes are `stored`. If the engine has no transactions, writes by
  /// others between the read and the write are lost.
  func batch(for update: StoreUpdate<Item>, stored: Data?) throws -> Batch {
    update.result.withLock { $0 = nil }
    let key = update.key
    var item = try stored.map { try decoded($0, of: key) }
    let exists = item != nil
    if let item {
      let before = identifier(item)
      try verify(CacheKey(identifier: before), in: key)
      // The entry may contain another item, whose identifier has the same hash. A modification would replace that item.
      if update.isModification { try key.checkIdentifier(before) }
      guard before.utf8.elementsEqual(key.rawValue.utf8) else { return Batch() }
    } else if !update.isModification {
      return Batch()
    }
    try update.change(&item)
    guard let changed = item else {
      return exists ? Batch(steps: [.remove([key])], operations: [.remove(key: key)]) : Batch()
    }
    try checkIdentifier(of: changed, is: key)
    let data = try codec.encode(changed, for: key)
    if !exists { try verifyIdentity(of: key, in: data) }
    update.result.withLock { $0 = changed }
    // The closure has only read the item.
    if update.isModification, let stored, try isUnchanged(changed, data, from: stored, of: key) {
      return Batch()
    }
    return Batch(steps: [.insert([(key, changed)])], operations: [.write(data, key: key)])
  }

  /// - Throws: `StorageError` with code `unsupported` if a change has given the item another identifier than that of the key.
  func checkIdentifier(of changed: Item, is key: CacheKey) throws {
    let after = identifier(changed)
    guard after.utf8.elementsEqual(key.rawValue.utf8) else {
      throw StorageError(
        .unsupported,
        "An update must not change the identifier of an item: it was \(key.rawValue.prefix(40).debugDescription) and "
          + "became \(after.prefix(40).debugDescription). Remove the item and insert the other one in a chain."
      )
    }
  }

  /// Whether the item equals the stored one. Two encodings of one item as JSON may differ in the order of their keys, so
  /// both items are encoded again with sorted keys and compared.
  func isUnchanged(
    _ item: Item, _ data: Data, from stored: Data, of key: CacheKey
  ) throws -> Bool {
    if data == stored { return true }
    // Decoded again, as the closure may have changed an object that the first item refers to.
    let before = try decoded(stored, of: key)
    do {
      // Another codec may store information that JSON omits, such as the base of a URL, so the items are compared as that
      // codec encodes them.
      guard codec.base is JSONCodec else { return try codec.encode(before, for: key) == data }
      let encoder = JSONEncoder()
      encoder.outputFormatting = .sortedKeys
      return try encoder.encode(item) == encoder.encode(before)
    } catch {
      // The items cannot be compared, so the changed one, which could be encoded, is written.
      return false
    }
  }
}
