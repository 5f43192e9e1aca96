import StockroomCore

extension PersistentCache {
  /// Waits until all earlier assignments have been written.
  ///
  /// Throws each failure once: the failures since the last call, and those of the writes that this call waits for. If there
  /// are several, the error has the code of the first one, and its `underlying` error is ``CacheWriteFailures``. If no
  /// failure has been recorded since the last call, this first retries earlier failed writes, and the removal of entries
  /// beyond the limit of storage if that failed. In such a retry, an entry whose value is no longer in memory is removed
  /// from storage.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`, or what the engine throws.
  @concurrent
  public func sync() async throws {
    try Task.checkCancellation()
    schedule { state in
      guard state.failures.isEmpty else { return }
      state.retryFailedWrites()
      retryStorageLimit(&state)
    }
    if isWrittenBehind { try await inOrder {} }
    if let failure = withState({ $0.failures.take() }) { throw failure }
  }

  /// Removes every entry of this namespace, in memory and in storage, and nothing else in the engine.
  ///
  /// Values assigned before the call are removed; values assigned during the call may be removed. O(N), and reads the whole
  /// namespace; the removal itself is one batch. Entries that another cache or process stores in the namespace at the same
  /// time may or may not be removed.
  ///
  /// - Throws: what the engine throws. Nothing has changed then, unless the outcome is unknown: after an error such as
  ///   `io`, or if the engine has no `EngineCapabilities.atomicBatches`. In that case memory is cleared too, and the next
  ///   reads go to the engine.
  @concurrent
  public func removeAll() async throws {
    try Task.checkCancellation()
    withState { state in
      state.loads.invalidateAll()
      state.removalsUnderWay += 1
    }
    defer { withState { $0.removalsUnderWay -= 1 } }
    try await changeAll { [storage] in
      try await storage?.removeAll()
      return { state in
        state.loads.invalidateAll()
        state.memory.removeAll()
        state.unwritten = []
        state.forgetSizes()
        state.hasLoadingSizesFailed = false
      }
    }
  }

  /// Removes expired entries, in memory and in storage. O(N), and reads the whole namespace.
  ///
  /// Each expired entry is read again immediately before it is removed, in one transaction if the engine has those. An entry that
  /// another cache or process replaces during the search is therefore kept; without transactions, unless it is replaced
  /// between that read and the removal.
  ///
  /// - Throws: what the engine throws. Some of the expired entries may have been removed then.
  @concurrent
  public func removeExpired() async throws {
    try Task.checkCancellation()
    let now = now()
    try await changeAll { [storage] in
      let removed = try await storage?.removeExpired(at: now) ?? []
      return { state in
        state.memory.removeAll { _, item in item.isExpired(at: now) }
        for key in removed { state.storedSizes?.remove(key) }
      }
    }
  }

  /// Removes all entries from memory that have been written. Without storage, removes all entries, except, with a limit of
  /// bytes, assigned values that have not been encoded yet.
  ///
  /// O(N), but other calls wait only O(U), where U writes have failed: the other values are released outside of the lock.
  public func clearMemoryCache() { withState { $0.clearMemory() } }

  /// Changes storage after all earlier writes, then changes the state in one step with the closure that `changeStorage` returns.
  private func changeAll(
    _ changeStorage: @escaping @Sendable () async throws -> @Sendable (inout State) -> Void
  ) async throws {
    try await inOrder { [self] in
      withState { $0.beginChangingAll() }
      do {
        let changeState = try await changeStorage()
        withState { state in
          changeState(&state)
          state.endChangingAll()
        }
      } catch {
        // Unless the engine guarantees that nothing has changed, the contents of storage are unknown.
        let mayHaveBeenApplied =
          !(error.guaranteesNoChange && storage?.engine.capabilities.contains(.atomicBatches) == true)
        withState { state in
          state.forgetSizes()
          if mayHaveBeenApplied { state.clearMemory() }
          state.endChangingAll()
        }
        throw error
      }
    }
  }
}
