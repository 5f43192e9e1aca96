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
    let isCertain: Bool
  }
}

// MARK: - Committing

extension StoreBackend {
  /// What the engine is to do for one call or chain.
  private struct Batch {
    var steps: [KeyedStep<Item>] = []
    var operations: [StorageOperation] = []
  }

  /// Encodes what is inserted, in parallel, and has the engine do all of the changes in order, as one batch.
  ///
  /// If that fails, each change is tried alone, so that one which cannot be done takes no other with it.
  ///
  /// - Parameter identifiers: Those of the store's items whose keys are hashes, by key.
  @concurrent
  func commit(_ changes: [[StoreStep<Item>]], identifiers: [CacheKey: String]) async -> CommitResult {
    var batches = await prepare(changes)
    await refuseSharedHashes(in: &batches, identifiers: identifiers)

    var isCertain = true
    let prepared = batches.compactMap { try? $0.get() }
    if prepared.count > 1 {
      let operations = prepared.flatMap(\.operations)
      do {
        try await engine?.perform(operations)
        return CommitResult(outcomes: batches.map { batch in batch.map(\.steps) }, isCertain: true)
      } catch {
        // Each is tried alone, and then says for itself what went wrong.
        isCertain = isNothingDone(operations, error)
      }
    }
    var outcomes: [Result<[KeyedStep<Item>], any Error>] = []
    for batch in batches {
      switch batch {
      case .failure(let error):
        outcomes.append(.failure(error))
      case .success(let batch):
        do {
          try await engine?.perform(batch.operations)
          outcomes.append(.success(batch.steps))
        } catch {
          isCertain = isCertain && isNothingDone(batch.operations, error)
          outcomes.append(.failure(error))
        }
      }
    }
    return CommitResult(outcomes: outcomes, isCertain: isCertain)
  }

  private func isNothingDone(_ operations: [StorageOperation], _ error: any Error) -> Bool {
    engine?.hasSurelyDoneNothing(of: operations, after: error) ?? true
  }

  /// Gives items their keys and turns them into bytes.
  private func prepare(_ changes: [[StoreStep<Item>]]) async -> [Result<Batch, any Error>] {
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
              batch.operations.append(.write(try data.get(), key: entry.key))
            }
          }
        }
        return batch
      }
    }
  }
}

// MARK: - Keys that are hashes

extension StoreBackend {
  /// Refuses changes to items whose key is the hash of another identifier than their own, so that no item ever takes
  /// another's place by accident or by design.
  private func refuseSharedHashes(
    in batches: inout [Result<Batch, any Error>], identifiers: [CacheKey: String]
  ) async {
    var others: [CacheKey: String] = [:]
    for index in batches.indices {
      guard let batch = try? batches[index].get() else { continue }
      let keys = batch.steps.flatMap(\.keys).filter {
        $0.isHash || identifiers[$0] != nil || others[$0] != nil
      }
      if keys.isEmpty { continue }
      do {
        let unknown = keys.filter { identifiers[$0] == nil && others[$0] == nil }
        for (key, data) in try await engine?.readDataAndKeys(keys: unknown) ?? [] {
          // What cannot be decoded has no identifier, and may be replaced.
          others[key] = (try? codec.decode(Item.self, from: data)).map(identifier)
        }
        for key in keys {
          if let stored = identifiers[key] ?? others[key] { try key.checkIdentifier(stored) }
          if key.isHash { others[key] = key.rawValue }
        }
      } catch {
        batches[index] = .failure(error)
      }
    }
  }
}
