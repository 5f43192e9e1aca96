import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// How a call is recorded for undo.
enum UndoPlan: Sendable {
  /// Nothing is recorded.
  case none
  /// The changes are recorded, in at most this number of bytes.
  case record(limit: Int)
  /// The call reverses an earlier one, and is recorded itself, so that it can be reversed as well.
  case revert(UndoRecord, limit: Int)
}

/// The result of a call that was made with a plan.
enum UndoOutcome: Sendable {
  /// Nothing was recorded.
  case notRecorded
  /// The changes of the call; nil if they take too much memory.
  case recorded(UndoRecord?)
  /// The call cannot be undone: others have changed the same entries since then.
  case outdated

  /// See ``UndoRecord/sort(as:isIndexed:)``.
  mutating func sort<Item>(as table: ItemTable<Item>, isIndexed: Bool) {
    guard case .recorded(var record?) = self else { return }
    record.sort(as: table, isIndexed: isIndexed)
    self = .recorded(record)
  }
}

/// Thrown if others have changed an entry since the call that is to be undone or redone.
struct OutdatedRecord: Error {
  let key: CacheKey

  var error: StorageError {
    StorageError(
      .conflict,
      "Nothing has been undone or redone, since the entry \(key) has been changed by others meanwhile.")
  }
}

// MARK: - Committing

extension StoreBackend {
  /// Commits the changes according to a plan. Unless the plan is `none`, there must be exactly one change.
  func commit(
    _ changes: [[StoreStep<Item>]], identifiers: consuming [CacheKey: String], isIdentityVerified: Bool,
    _ plan: UndoPlan
  ) async -> CommitResult {
    switch plan {
    case .none:
      return await commit(changes, identifiers: identifiers, isIdentityVerified: isIdentityVerified)
    case .record(let limit):
      var isIdentityVerified = isIdentityVerified
      var batches = await prepare(changes, &isIdentityVerified)
      await rejectHashCollisions(in: &batches, identifiers: identifiers)
      return await commit(batches[0], expecting: nil, limit: limit, isIdentityVerified)
    case .revert(let record, let limit):
      do {
        let batch = try await batch(reverting: record)
        return await commit(.success(batch), expecting: record, limit: limit, isIdentityVerified)
      } catch {
        return CommitResult(outcomes: [.failure(error)], isIdentityVerified: isIdentityVerified)
      }
    }
  }

  /// Applies one batch and records its changes, as one step.
  ///
  /// - Parameter record: The entries that must not have changed since then.
  @concurrent
  private func commit(
    _ batch: Result<Batch, any Error>, expecting record: UndoRecord?, limit: Int, _ isIdentityVerified: Bool
  ) async -> CommitResult {
    var result: CommitResult
    /// The error that the body of the transaction threw, in which case nothing has changed.
    let refusal = MutexProtected<(any Error)?>(nil)
    /// Whether something may have been written when an error is thrown.
    var isWriting = true
    do {
      let batch = try batch.get()
      do {
        guard let engine else { throw StorageError(.unsupported, "A preview records nothing.") }
        let (done, recorded): (Batch, UndoRecord?)
        if hasTransactions {
          (done, recorded) = try await asOrigin {
            try await engine.withTransaction { transaction in
              refusal.withLock { $0 = nil }
              do {
                return try perform(batch, recordingIn: transaction, expecting: record, limit: limit)
              } catch {
                refusal.withLock { $0 = error }
                throw error
              }
            }
          }
        } else {
          isWriting = false
          (done, recorded) = try await perform(
            batch, recordingIn: engine, expecting: record, limit: limit, &isWriting)
        }
        result = self.result(of: [.success(done)], isIdentityVerified: isIdentityVerified)
        result.undo = .recorded(recorded)
      } catch let outdated as OutdatedRecord {
        result = CommitResult(outcomes: [.failure(outdated.error)], isIdentityVerified: isIdentityVerified)
        result.undo = .outdated
      } catch {
        result = CommitResult(outcomes: [.failure(error)], isIdentityVerified: isIdentityVerified)
        result.isOutcomeKnown =
          !isWriting || refusal.withLock { $0 != nil }
          || engine?.wasDefinitelyNotApplied(batch.operations, after: error) ?? true
      }
    } catch {
      result = CommitResult(outcomes: [.failure(error)], isIdentityVerified: isIdentityVerified)
    }
    return result
  }
}

// MARK: - Reading and writing

extension StoreBackend {
  private func perform(
    _ batch: Batch, recordingIn transaction: any StorageTransaction, expecting record: UndoRecord?, limit: Int
  ) throws -> (Batch, UndoRecord?) {
    var batch = batch
    if let update = batch.update {
      batch = try self.batch(for: update, stored: transaction.read(key: update.key))
    }
    var recorder = UndoRecorder(of: batch.operations, expecting: record, limit: limit)
    while let request = recorder.next {
      switch request {
      case .values(let keys): try recorder.add(keys, transaction.values(of: keys))
      case .page(let range): recorder.add(page: try transaction.scan(range, limit: UndoRecorder.pageSize))
      }
    }
    try transaction.apply(batch.operations, keepingNewerThan: keepsNewer ? codec.version : nil)
    return (batch, recorder.record())
  }

  /// Like ``perform(_:recordingIn:expecting:limit:)``, for engines without transactions. Writes by others between the reads
  /// and the write are not detected.
  ///
  /// - Parameter isWriting: Becomes true before anything is written.
  private func perform(
    _ batch: Batch, recordingIn engine: any StorageEngine, expecting record: UndoRecord?, limit: Int,
    _ isWriting: inout Bool
  ) async throws -> (Batch, UndoRecord?) {
    var batch = batch
    if let update = batch.update {
      batch = try self.batch(for: update, stored: await engine.read(key: update.key))
    }
    var recorder = UndoRecorder(of: batch.operations, expecting: record, limit: limit)
    while let request = recorder.next {
      switch request {
      case .values(let keys): try recorder.add(keys, await engine.values(of: keys))
      case .page(let range): recorder.add(page: try await engine.scan(range, limit: UndoRecorder.pageSize))
      }
    }
    if !batch.operations.isEmpty {
      isWriting = true
      try await apply(batch.operations)
    }
    return (batch, recorder.record())
  }

  /// The batch that reverses a call: it removes the entries that the call has inserted or moved, restores the values that
  /// the call has replaced in place, and appends the entries that the call has removed or moved, in their previous order.
  private func batch(reverting record: UndoRecord) async throws -> Batch {
    let inserted = record.entries.filter { $0.after != nil && ($0.before == nil || $0.isMoved) }
    let replaced = record.entries.filter { $0.before != nil && $0.after != nil && !$0.isMoved }
    let removed = record.entries.filter { $0.before != nil && ($0.after == nil || $0.isMoved) }
    var batch = Batch()
    if !inserted.isEmpty { batch.steps.append(.remove(inserted.map(\.key))) }
    batch.operations = inserted.map { .remove(key: $0.key) }
    let written = (replaced + removed).compactMap { entry in
      entry.before.map {
        StorageEntry(key: entry.key, data: $0, createdAt: .distantPast, updatedAt: .distantPast)
      }
    }
    let contents = try await parallelMap(written) { entry in
      Result { () throws(StorageError) in try item(in: entry) }
    }
    var (items, unreadable): ([(key: CacheKey, item: Item)], [UnreadableEntry]) = ([], [])
    for (entry, content) in zip(written, contents) {
      batch.operations.append(.write(entry.data, key: entry.key))
      switch content {
      case .success(let item):
        batch.append(&unreadable)
        items.append(item)
      case .failure(let error):
        batch.append(&items)
        unreadable.append(UnreadableEntry(key: entry.key, error: error))
      }
    }
    batch.append(&items)
    batch.append(&unreadable)
    return batch
  }
}

extension StoreBackend.Batch {
  /// Moves the items into their own step, if there are any.
  fileprivate mutating func append(_ items: inout [(key: CacheKey, item: Item)]) {
    if !items.isEmpty { steps.append(.insert(exchange(&items, with: []))) }
  }

  fileprivate mutating func append(_ unreadable: inout [UnreadableEntry]) {
    if !unreadable.isEmpty { steps.append(.unreadable(exchange(&unreadable, with: []))) }
  }
}
