import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What a store does away from the main actor: encode, decode, and call the engine.
struct StoreBackend<Item: StorableItem>: Sendable {
  /// Nil for a preview, which keeps nothing.
  let engine: (any StorageEngine)?
  let codec: any Codec
  let identifier: @Sendable (Item) -> String

  /// What became of calls and chains.
  struct CommitResult: Sendable {
    /// For each, what was done, or why it was not.
    let outcomes: [Result<[KeyedStep<Item>], any Error>]
    /// Whether the engine has done just that. If not, a failure leaves it open how much it has done.
    var isCertain = true
    /// Whether an item has been found to keep its identifier when it is encoded and decoded.
    let isIdentityVerified: Bool

    /// Everything that was done, in order.
    var steps: [KeyedStep<Item>] { outcomes.flatMap { (try? $0.get()) ?? [] } }
  }
}

// MARK: - Committing

extension StoreBackend {
  /// What the engine is to do for one call or chain.
  struct Batch {
    var steps: [KeyedStep<Item>] = []
    var operations: [StorageOperation] = []
  }

  /// Encodes what is inserted, in parallel, and has the engine do all of the changes in order, as one batch.
  ///
  /// If that fails, each change is tried alone, so that one which cannot be done takes no other with it; but not where
  /// all would fail alike, and each perhaps only after a long wait.
  ///
  /// - Parameters:
  ///   - identifiers: Those of the store's items whose keys are hashes, by key.
  ///   - isIdentityVerified: Whether items are known to keep their identifiers.
  @concurrent
  func commit(
    _ changes: [[StoreStep<Item>]], identifiers: consuming [CacheKey: String], isIdentityVerified: Bool
  ) async -> CommitResult {
    var isIdentityVerified = isIdentityVerified
    var batches = await prepare(changes, &isIdentityVerified)
    await refuseSharedHashes(in: &batches, identifiers: identifiers)

    var isCertain = true
    /// Why nothing more is tried.
    var obstacle: (any Error)?
    let prepared = batches.compactMap { try? $0.get() }
    if prepared.count > 1 {
      let operations = prepared.flatMap(\.operations)
      do {
        if !operations.isEmpty { try await engine?.apply(operations) }
        return CommitResult(
          outcomes: batches.map { batch in batch.map(\.steps) }, isIdentityVerified: isIdentityVerified)
      } catch {
        isCertain = isNothingDone(operations, error)
        if error.concernsEveryCall { obstacle = error }
      }
    }
    var outcomes: [Result<[KeyedStep<Item>], any Error>] = []
    for batch in batches {
      do {
        let batch = try batch.get()
        if let obstacle { throw obstacle }
        do {
          if !batch.operations.isEmpty { try await engine?.apply(batch.operations) }
        } catch {
          isCertain = isCertain && isNothingDone(batch.operations, error)
          if error.concernsEveryCall { obstacle = error }
          throw error
        }
        outcomes.append(.success(batch.steps))
      } catch {
        outcomes.append(.failure(error))
      }
    }
    return CommitResult(outcomes: outcomes, isCertain: isCertain, isIdentityVerified: isIdentityVerified)
  }

  private func isNothingDone(_ operations: [StorageOperation], _ error: any Error) -> Bool {
    engine?.hasSurelyDoneNothing(of: operations, after: error) ?? true
  }

  /// Gives items their keys and turns them into bytes.
  private func prepare(
    _ changes: [[StoreStep<Item>]], _ isIdentityVerified: inout Bool
  ) async -> [Result<Batch, any Error>] {
    let keyed = changes.map { steps in
      Result { try steps.map { try KeyedStep($0, identifier: identifier) } }
    }
    // All items of all changes in one list, which is what can be encoded in parallel.
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
    return keyed.map { change in
      Result {
        var batch = Batch(steps: try change.get())
        // Taken first, so that an item which cannot be encoded shifts no other change's.
        let own = batch.steps.map { step in
          defer { values = values.dropFirst(step.insertions.count) }
          return values.prefix(step.insertions.count)
        }
        for (step, values) in zip(batch.steps, own) {
          switch step {
          case .removeAll: batch.operations.append(.removeAll)
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

  /// Throws unless the bytes are an item with the identifier of the key. After a restart it would not be found: as with
  /// `let id = UUID()`, which is another each time that an item is decoded.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`.
  private func verifyIdentity(of key: CacheKey, in data: Data) throws {
    if engine == nil { return }
    let decoded: String
    do {
      decoded = identifier(try codec.decode(Item.self, from: data))
    } catch {
      throw StorageError(
        .encodingFailed,
        "Nothing has been stored, since no \(Item.self) could be read again: what one is encoded as cannot be decoded.",
        underlying: error)
    }
    guard CacheKey(identifier: decoded) == key else {
      throw StorageError(
        .encodingFailed,
        "Nothing has been stored, since a \(Item.self) does not keep its identifier, and so could not be found again: "
          + "\(key.rawValue.prefix(40).debugDescription) was encoded, and \(decoded.prefix(40).debugDescription) "
          + "decoded. A property such as `let id = UUID()` is not decoded; `var` or an initialiser is needed. A date or "
          + "a number may be rounded.")
    }
  }
}

extension Error {
  /// Whether every other call would fail for the same reason: after a minute, where another process holds a lock.
  fileprivate var concernsEveryCall: Bool {
    let code = (self as? StorageError)?.code
    return code == .locked || code == .closed
  }
}
