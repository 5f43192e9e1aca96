import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The part of a store that runs off the main actor: it encodes, decodes, and calls the engine.
struct StoreBackend<Item: StorableItem>: Sendable {
  /// Nil for a preview.
  let engine: (any StorageEngine)?
  let codec: ItemCodec<Item>
  let identifier: @Sendable (Item) -> String
  /// Distinguishes the changes of this store from those of others in the engine's feed.
  let origin = ChangeOrigin()
  /// The versions of the entries that have been decoded.
  let versions = VersionLog()

  init(engine: (any StorageEngine)?, codec: any Codec, identifier: @escaping @Sendable (Item) -> String) {
    (self.engine, self.codec, self.identifier) = (engine, ItemCodec(codec), identifier)
  }

  /// The outcome of calls and chains.
  struct CommitResult: Sendable {
    /// For each change, the steps that were applied, or the error.
    let outcomes: [Result<[KeyedStep<Item>], any Error>]
    /// False if the engine may have applied a change that failed, in whole or in part.
    var isOutcomeKnown = true
    /// Whether it has been verified that the identifier of an item survives encoding.
    let isIdentityVerified: Bool
    /// Digests of the values that were written, by which the store recognizes its own changes.
    var written = OwnWrites()
    /// What the undo history records about the commit.
    var undo = UndoOutcome.notRecorded

    /// All steps that were applied, in order.
    var steps: [KeyedStep<Item>] { outcomes.flatMap { (try? $0.get()) ?? [] } }
  }
}

// MARK: - Committing

extension StoreBackend {
  /// The operations of the engine for one call or chain.
  struct Batch {
    var steps: [KeyedStep<Item>] = []
    var operations: [StorageOperation] = []
    /// The update that must read the entry before its operations are known.
    var update: StoreUpdate<Item>?
    /// Entries of older versions, which must be read before their operations are known.
    var rewriting: StoreRewriting?

    var readsFirst: Bool { update != nil || rewriting != nil }

    /// Whether a part of the batch may have been applied if it throws within a transaction. For a single operation, only
    /// `invalidKey` and `valueTooLarge` exclude that, so that the transaction can continue with the other batches.
    func mayBeDoneInPart(after error: any Error) -> Bool {
      if rewriting != nil || operations.mayBeAppliedInPart { return true }
      if operations.isEmpty { return false }
      return ![.invalidKey, .valueTooLarge].contains((error as? StorageError)?.code)
    }
  }

  /// Encodes the inserted items, in parallel, and applies all changes to the engine in order, as one batch.
  ///
  /// If that fails, each change is applied separately, so that a failing one does not affect the others. This does not
  /// happen if every call would fail with the same error (see `affectsEveryCall`), or if the outcome of a transaction with
  /// updates is unknown.
  ///
  /// - Parameters:
  ///   - identifiers: The identifiers of the store's items whose keys are hashes, by key.
  ///   - isIdentityVerified: Whether it has been verified that the identifier of an item survives encoding.
  @concurrent
  func commit(
    _ changes: [[StoreStep<Item>]], identifiers: consuming [CacheKey: String], isIdentityVerified: Bool
  ) async -> CommitResult {
    var isIdentityVerified = isIdentityVerified
    var batches = await prepare(changes, &isIdentityVerified)
    await rejectHashCollisions(in: &batches, identifiers: identifiers)

    var isOutcomeKnown = true
    /// The error that all remaining changes would fail with.
    var blockingError: (any Error)?
    let prepared = batches.compactMap { try? $0.get() }
    let hasUpdates = prepared.contains { $0.readsFirst }
    if hasUpdates, hasTransactions {
      do {
        return result(of: try await commitAsTransaction(batches), isIdentityVerified: isIdentityVerified)
      } catch let abandoned as AbandonedTransaction {
        let cause = abandoned.cause
        if batches.count == 1 || cause.affectsEveryCall { blockingError = cause }
      } catch {
        isOutcomeKnown = error.guaranteesNoChange
        // An update that may have been applied must not be repeated.
        if batches.count == 1 || !isOutcomeKnown || error.affectsEveryCall { blockingError = error }
      }
    } else if prepared.count > 1, !hasUpdates {
      let operations = prepared.flatMap(\.operations)
      do {
        if !operations.isEmpty { try await apply(operations) }
        return result(of: batches, isIdentityVerified: isIdentityVerified)
      } catch {
        isOutcomeKnown = wasDefinitelyNotApplied(operations, error)
        if error.affectsEveryCall { blockingError = error }
      }
    }
    var outcomes: [Result<Batch, any Error>] = []
    for batch in batches {
      do {
        var batch = try batch.get()
        if let blockingError { throw blockingError }
        // While this is false, nothing has been written, so the outcome is known after any error.
        var isWriting = batch.readsFirst && hasTransactions
        do {
          if batch.readsFirst, hasTransactions {
            outcomes += try await commitAsTransaction([.success(batch)])
            continue
          }
          if let update = batch.update {
            let stored = try await engine?.read(key: update.key)
            do {
              batch = try self.batch(for: update, stored: stored)
            } catch {
              // An error of the closure does not concern the other calls.
              outcomes.append(.failure(error))
              continue
            }
          }
          if let rewriting = batch.rewriting { batch = try await self.batch(for: rewriting) }
          isWriting = true
          if !batch.operations.isEmpty { try await apply(batch.operations) }
        } catch let abandoned as AbandonedTransaction {
          if abandoned.cause.affectsEveryCall { blockingError = abandoned.cause }
          throw abandoned.cause
        } catch {
          if isWriting {
            isOutcomeKnown = isOutcomeKnown && wasDefinitelyNotApplied(batch.operations, error)
          }
          if error.affectsEveryCall { blockingError = error }
          throw error
        }
        outcomes.append(.success(batch))
      } catch {
        outcomes.append(.failure(error))
      }
    }
    return result(of: outcomes, isOutcomeKnown: isOutcomeKnown, isIdentityVerified: isIdentityVerified)
  }

  /// - Parameter outcomes: For each change, the batch that was applied, or the error.
  func result(
    of outcomes: [Result<Batch, any Error>], isOutcomeKnown: Bool = true, isIdentityVerified: Bool
  ) -> CommitResult {
    var result = CommitResult(
      outcomes: outcomes.map { outcome in outcome.map(\.steps) }, isOutcomeKnown: isOutcomeKnown,
      isIdentityVerified: isIdentityVerified)
    guard let engine, engine.capabilities.contains(.changeFeed) else { return result }
    for case .success(let batch) in outcomes where batch.rewriting == nil {
      result.written.add(batch.operations)
    }
    return result
  }

  private func wasDefinitelyNotApplied(_ operations: [StorageOperation], _ error: any Error) -> Bool {
    engine?.wasDefinitelyNotApplied(operations, after: error) ?? true
  }

  /// Determines the keys of items and encodes them.
  func prepare(
    _ changes: [[StoreStep<Item>]], _ isIdentityVerified: inout Bool
  ) async -> [Result<Batch, any Error>] {
    let keyed = changes.map { steps in
      Result { try steps.map { try KeyedStep($0, identifier: identifier) } }
    }
    // The items of all changes in one array, to be encoded in parallel.
    let items = keyed.compactMap { try? $0.get() }.joined().flatMap(\.insertions)
    let encoded: [Result<Data, any Error>]
    do {
      encoded = try await parallelMap(items) { [codec] entry in
        Result { try codec.encode(entry.item, for: entry.key) }
      }
    } catch {
      return changes.map { _ in .failure(error) }
    }
    var values = encoded[...]
    return zip(keyed, changes).map { change, steps in
      Result {
        var batch = Batch(steps: try change.get())
        // Computed before anything is thrown, so that an error in this change does not assign its values to the next one.
        let own = batch.steps.map { step in
          defer { values = values.dropFirst(step.insertions.count) }
          return values.prefix(step.insertions.count)
        }
        if case .update(let update)? = steps.first {
          batch.update = update
          return batch
        }
        if case .rewrite(let rewriting)? = steps.first {
          batch.rewriting = rewriting
          return batch
        }
        for (step, values) in zip(batch.steps, own) {
          switch step {
          case .removeAll: batch.operations.append(.removeAll)
          case .unreadable: break
          case .remove(let keys): batch.operations += keys.map { .remove(key: $0) }
          case .insert(let items):
            for (entry, data) in zip(items, values) {
              let data = try data.get()
              if !isIdentityVerified {
                try verifyIdentity(of: entry.key, in: data)
                isIdentityVerified = true
              }
              batch.operations.append(.write(data, key: entry.key))
            }
          }
        }
        return batch
      }
    }
  }

  /// Throws unless the bytes are decoded as an item with this key. Otherwise the item could not be identified
  /// after a restart: `let id = UUID()` has a new value whenever an item is decoded.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`.
  func verifyIdentity(of key: CacheKey, in data: Data) throws {
    if engine == nil { return }
    let decoded: String
    do throws(StorageError) {
      decoded = identifier(try codec.decode(data, of: key))
    } catch {
      throw StorageError(
        .encodingFailed,
        "Nothing has been stored, since an encoded \(Item.self) cannot be decoded.",
        underlying: error.underlying)
    }
    guard CacheKey(identifier: decoded) == key else {
      throw StorageError(
        .encodingFailed,
        "Nothing has been stored, since the identifier of a \(Item.self) does not survive encoding: "
          + "\(key.rawValue.prefix(40).debugDescription) was encoded, and \(decoded.prefix(40).debugDescription) "
          + "decoded. A property such as `let id = UUID()` is not decoded: use `var` or an initializer. A date or "
          + "a number may be rounded.")
    }
  }
}
