import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// At most one task writes at a time, in the order of the queue, and keeps the cache alive until the queue is empty.

extension PersistentCache {
  /// The most changes that are encoded and written at once.
  private static var batchSize: Int { 256 }

  /// Calls `body` with the state, and sees to it that what it puts into the queue is done.
  func schedule(_ body: (inout State) -> Void) {
    let hasToStart = withState { state in
      body(&state)
      defer { state.isWriting = state.isWriting || !state.queue.isEmpty }
      return !state.isWriting && !state.queue.isEmpty
    }
    if hasToStart { Task { await writeQueue() } }
  }

  /// Calls `body` when all that was asked for before has been written, and before anything that is asked for later.
  func inOrder<Result: Sendable>(_ body: @escaping @Sendable () async throws -> Result) async throws -> Result
  {
    try await withCheckedThrowingContinuation { continuation in
      schedule { state in
        state.queue.append(
          .task {
            do {
              continuation.resume(returning: try await body())
            } catch {
              continuation.resume(throwing: error)
            }
          })
      }
    }
  }

  @concurrent
  private func writeQueue() async {
    while let queue = withState({ $0.takeQueue() }) {
      var batch: [CacheWork<Item>] = []
      for work in queue {
        if case .task(let task) = work {
          await write(batch)
          batch = []
          await task()
        } else {
          batch.append(work)
          if batch.count < Self.batchSize { continue }
          await write(batch)
          batch = []
        }
      }
      await write(batch)
    }
  }

  private func write(_ batch: [CacheWork<Item>]) async {
    var changes = withState { state in batch.compactMap { state.begin($0) } }
    guard !changes.isEmpty else { return }
    for index in changes.indices { encode(&changes[index]) }
    await carryOut(&changes)
    await keepStorageLimit(after: changes)
    let ended = changes
    withState { state in for change in ended { state.end(change) } }
    for change in ended {
      guard let acknowledgement = change.acknowledgement else { continue }
      if let failure = change.failure {
        acknowledgement.resume(throwing: failure)
      } else {
        acknowledgement.resume()
      }
    }
  }

  private func encode(_ change: inout CacheChange<Item>) {
    guard let item = change.item else { return }
    do {
      if change.value == nil { change.value = try encoded(item.value, for: change.key) }
    } catch {
      change.failure = error
    }
    change.size = change.value?.count
  }

  /// The bytes of a value.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`.
  func encoded(_ value: Value, for key: KeyText) throws -> Data {
    try codec.encodeForRoundTrip(
      value, for: storage?.namespace.name(of: key).key ?? CacheKey(verbatim: key.string))
  }
}

// MARK: - Storage

extension PersistentCache {
  private func carryOut(_ changes: inout [CacheChange<Item>]) async {
    guard let storage else {
      for index in changes.indices { changes[index].isStored = true }
      return
    }
    let operations = changes.map { operation(for: $0, in: storage) }
    do {
      try await storage.engine.apply(operations)
      for index in changes.indices { changes[index].isStored = true }
    } catch  where changes.count > 1 {
      // One by one, so that a change which cannot be made is in nobody's way.
      let mayHaveHappened = !storage.engine.hasSurelyDoneNothing(of: operations, after: error)
      for index in changes.indices {
        changes[index].mayHaveHappened = mayHaveHappened
        await carryOut(&changes[index], operations[index], in: storage)
      }
    } catch {
      await fail(&changes[0], error, in: storage)
    }
  }

  private func carryOut(
    _ change: inout CacheChange<Item>, _ operation: StorageOperation, in storage: CacheStorage
  ) async {
    do {
      try await storage.engine.apply([operation])
      change.isStored = true
    } catch {
      await fail(&change, error, in: storage)
    }
  }

  private func fail(_ change: inout CacheChange<Item>, _ error: any Error, in storage: CacheStorage) async {
    change.failure = change.failure ?? error
    change.mayHaveHappened =
      change.mayHaveHappened || !error.precedesChanges
    guard change.acknowledgement == nil, (error as? StorageError)?.code == .valueTooLarge else { return }
    // It will be too large the next time, too. What is stored is out of date.
    change.value = nil
    do {
      try await storage.engine.remove(key: storage.namespace.name(of: change.key).key)
      change.isStored = true
    } catch {
      // The change stays unwritten, for the reason that is noted already.
    }
  }

  private func operation(for change: CacheChange<Item>, in storage: CacheStorage) -> StorageOperation {
    let name = storage.namespace.name(of: change.key)
    guard let value = change.value, storageLimit.admits(bytes: value.count) else {
      return .remove(key: name.key)
    }
    let entry = CacheEntry(
      writtenAt: now(), expiresAt: change.item?.expiresAt, proof: name.proof, value: value)
    return .write(entry.encoded, key: name.key)
  }

  /// Queues another attempt at counting what is in storage, or at removing what is too much, if the last one failed.
  func retryLimiting(_ state: inout State) {
    let isExceeded = state.stored.map { storageLimit.isExceeded(entries: $0.count, bytes: $0.size) } ?? false
    guard state.isUncountable || isExceeded else { return }
    state.queue.append(
      .task { [self] in
        withState { $0.isUncountable = false }
        await keepStorageLimit(after: [])
      })
  }

  /// Removes what was written longest ago and is too much. O(changes), after the entries have been counted once.
  private func keepStorageLimit(after changes: [CacheChange<Item>]) async {
    guard let storage, storageLimit != .unlimited, !withState({ $0.isUncountable }) else { return }
    do {
      if withState({ $0.stored == nil }) {
        withState { $0.isUncountable = true }
        let stored = try await count(storage)
        withState { state in
          state.stored = stored
          state.isUncountable = false
        }
      } else {
        withState { state in
          for change in changes where change.isStored || change.mayHaveHappened {
            note(change, in: storage, &state)
          }
        }
      }
      let excess = withState { $0.stored?.keysBeyond(storageLimit) ?? [] }
      guard !excess.isEmpty else { return }
      try await storage.engine.remove(keys: excess)
      withState { state in for key in excess { state.stored?.remove(key) } }
    } catch {
      withState { $0.failures.append(error) }
    }
  }

  private func note(_ change: CacheChange<Item>, in storage: CacheStorage, _ state: inout State) {
    let key = storage.namespace.name(of: change.key).key
    // Where nobody knows whether storage has the old value, the new one or none, the largest counts.
    let earlier = change.isStored ? nil : state.stored?.size(of: key)
    if let value = change.value, storageLimit.admits(bytes: value.count) {
      state.stored?.put((), size: max(value.count, earlier ?? 0), for: key)
    } else if earlier == nil {
      state.stored?.remove(key)
    }
  }

  /// What is in storage, in the order in which it was written. O(N log N), and reads all of it.
  private func count(_ storage: CacheStorage) async throws -> RecencyList<CacheKey, Void> {
    var found: [(writtenAt: Date, key: CacheKey, size: Int)] = []
    try await storage.forEachPage { page in
      found += page.map { ($0.entry?.writtenAt ?? .distantPast, $0.key, $0.entry?.value.count ?? $0.size) }
    }
    var stored = RecencyList<CacheKey, Void>()
    for entry in found.sorted(by: { ($0.writtenAt, $0.key) < ($1.writtenAt, $1.key) }) {
      stored.put((), size: entry.size, for: entry.key)
    }
    return stored
  }
}
