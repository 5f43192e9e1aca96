import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// At most one task writes at a time, in the order of the queue. It keeps the cache alive until the queue is empty.

extension PersistentCache {
  /// The maximum number of changes in a batch.
  private static var batchSize: Int { 256 }

  /// Calls `body` with the state, and starts a task that writes if `body` has added to the queue and none is running.
  func schedule(_ body: (inout State) -> Void) {
    let mustStart = withState { state in
      body(&state)
      defer { state.isWriting = state.isWriting || !state.queue.isEmpty }
      return !state.isWriting && !state.queue.isEmpty
    }
    if mustStart { Task { await ChangeOrigin.$current.withValue(core.origin) { await writeQueue() } } }
  }

  /// Calls `body` after all writes that were queued before, and before those that are queued later.
  func inOrder<Result: Sendable>(_ body: @escaping @Sendable () async throws -> Result) async throws -> Result
  {
    try await withCheckedThrowingContinuation { continuation in
      schedule { state in
        state.queue.append(
          .barrier {
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
      var batch: [QueuedWrite<Item>] = []
      for queued in queue {
        if case .barrier(let body) = queued {
          await write(batch)
          batch = []
          await body()
        } else {
          batch.append(queued)
          if batch.count < Self.batchSize { continue }
          await write(batch)
          batch = []
        }
      }
      await write(batch)
    }
  }

  private func write(_ batch: [QueuedWrite<Item>]) async {
    if batch.isEmpty { return }
    // The subscription precedes the write, so that no later change of others is missed.
    await core.followIfNeeded()
    let isKept = core.isFollowing && core.keepsStoredValues
    var changes = withState { state in batch.compactMap { state.begin($0) } }
    guard !changes.isEmpty else { return }
    for index in changes.indices { encode(&changes[index]) }
    await apply(&changes)
    await enforceStorageLimit(after: changes)
    let ended = changes
    withState { $0.end(ended, inMemory: isKept) }
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
  func encoded(_ value: Value, for key: EncodedKey) throws -> Data {
    try codec.encodeForRoundTrip(
      value, for: storage?.namespace.name(of: key).key ?? CacheKey(verbatim: key.string))
  }
}

// MARK: - Storage

extension PersistentCache {
  private func apply(_ changes: inout [CacheChange<Item>]) async {
    guard let storage else {
      for index in changes.indices { changes[index].isStored = true }
      return
    }
    let operations = changes.map { operation(for: $0, in: storage) }
    do {
      try await storage.engine.apply(operations)
      for index in changes.indices { changes[index].isStored = true }
    } catch  where changes.count > 1 {
      // One by one, so that a failing change does not prevent the others.
      let mayHaveBeenApplied = !storage.engine.wasDefinitelyNotApplied(operations, after: error)
      var blockingError = error.affectsEveryCall ? error : nil
      for index in changes.indices {
        changes[index].mayHaveBeenApplied = mayHaveBeenApplied
        if blockingError == nil { await apply(&changes[index], operations[index], in: storage) }
        if let failure = changes[index].failure, failure.affectsEveryCall { blockingError = failure }
        if let blockingError { changes[index].failure = changes[index].failure ?? blockingError }
      }
    } catch {
      await handleFailure(of: &changes[0], error, in: storage)
    }
  }

  private func apply(
    _ change: inout CacheChange<Item>, _ operation: StorageOperation, in storage: CacheStorage
  ) async {
    do {
      try await storage.engine.apply([operation])
      change.isStored = true
    } catch {
      await handleFailure(of: &change, error, in: storage)
    }
  }

  private func handleFailure(
    of change: inout CacheChange<Item>, _ error: any Error, in storage: CacheStorage
  ) async {
    change.failure = change.failure ?? error
    change.mayHaveBeenApplied = change.mayHaveBeenApplied || !error.guaranteesNoChange
    guard change.acknowledgement == nil, (error as? StorageError)?.code == .valueTooLarge else { return }
    // A retry would fail too, so the stored value, which is out of date, is removed.
    change.value = nil
    do {
      try await storage.engine.remove(key: storage.namespace.name(of: change.key).key)
      change.isStored = true
    } catch {
      // The change stays unwritten. Its first failure is reported.
    }
  }

  private func operation(for change: CacheChange<Item>, in storage: CacheStorage) -> StorageOperation {
    let name = storage.namespace.name(of: change.key)
    guard let value = change.value, storageLimit.admits(bytes: value.count) else {
      return .remove(key: name.key)
    }
    let entry = CacheEntry(
      writtenAt: now(), expiresAt: change.item?.expiresAt, fullName: name.fullName, value: value)
    return .write(entry.encoded, key: name.key)
  }

  /// Queues another removal of the entries beyond the limit of storage, if the last one failed.
  func retryStorageLimit(_ state: inout State) {
    let isExceeded =
      state.storedSizes.map { storageLimit.isExceeded(entries: $0.count, bytes: $0.size) } ?? false
    guard state.hasLoadingSizesFailed || isExceeded else { return }
    state.queue.append(
      .barrier { [self] in
        withState { $0.hasLoadingSizesFailed = false }
        await enforceStorageLimit(after: [])
      })
  }

  /// Removes the least recently written entries beyond the limit. O(changes), once the sizes have been loaded.
  private func enforceStorageLimit(after changes: [CacheChange<Item>]) async {
    guard let storage, storageLimit != .unlimited, !withState({ $0.hasLoadingSizesFailed }) else { return }
    let unmeasured = withState { $0.beginMeasuring() }
    do {
      if let unmeasured {
        withState { state in
          for change in changes where change.isStored || change.mayHaveBeenApplied {
            recordSize(of: change, in: storage, &state)
          }
        }
        if !unmeasured.isEmpty { try await measure(Array(unmeasured), in: storage) }
      } else {
        withState { $0.hasLoadingSizesFailed = true }
        let sizes = try await loadSizes(from: storage)
        withState { state in
          state.hasLoadingSizesFailed = false
          // Others may have changed anything in the meantime. The next write loads the sizes again then.
          if state.unmeasuredKeys != nil { state.storedSizes = sizes }
        }
      }
      let excess = withState { $0.storedSizes?.keysBeyond(storageLimit) ?? [] }
      guard !excess.isEmpty else { return }
      try await storage.engine.remove(keys: excess)
      withState { state in for key in excess { state.storedSizes?.remove(key) } }
    } catch {
      withState { state in
        if let unmeasured { state.noteForeignChange(of: Array(unmeasured)) }
        state.failures.append(error)
      }
    }
  }

  /// Reads the entries that others have changed, and records their sizes.
  private func measure(_ keys: [CacheKey], in storage: CacheStorage) async throws {
    let found = try await storage.entries(of: keys).map(StoredSize.init).sorted()
    withState { state in
      for key in keys { state.storedSizes?.remove(key) }
      for entry in found { state.storedSizes?.put((), size: entry.size, for: entry.key) }
    }
  }

  private func recordSize(of change: CacheChange<Item>, in storage: CacheStorage, _ state: inout State) {
    let key = storage.namespace.name(of: change.key).key
    // If the outcome is unknown, storage may have the old value, the new one or none: the largest counts.
    let earlier = change.isStored ? nil : state.storedSizes?.size(of: key)
    if let value = change.value, storageLimit.admits(bytes: value.count) {
      state.storedSizes?.put((), size: max(value.count, earlier ?? 0), for: key)
    } else if earlier == nil {
      state.storedSizes?.remove(key)
    }
  }

  /// The sizes of all entries, the least recently written first. O(N log N), and reads the whole namespace.
  private func loadSizes(from storage: CacheStorage) async throws -> LRUList<CacheKey, Void> {
    var found: [StoredSize] = []
    try await storage.forEachPage { page in found += page.map(StoredSize.init) }
    var sizes = LRUList<CacheKey, Void>()
    for entry in found.sorted() { sizes.put((), size: entry.size, for: entry.key) }
    return sizes
  }
}

/// The size of an entry in storage. Sizes are in the order in which the entries were written.
private struct StoredSize: Comparable {
  private let writtenAt: Date
  let key: CacheKey
  let size: Int

  init(_ stored: CacheStorage.StoredEntry) {
    (writtenAt, key) = (stored.entry?.writtenAt ?? .distantPast, stored.key)
    size = stored.entry?.value.count ?? stored.size
  }

  static func < (one: Self, other: Self) -> Bool { (one.writtenAt, one.key) < (other.writtenAt, other.key) }
}
