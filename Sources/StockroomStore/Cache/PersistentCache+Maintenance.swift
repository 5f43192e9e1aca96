import StockroomCore

extension PersistentCache {
  /// Waits until all that was assigned before has been written.
  ///
  /// Each failure is thrown once: what fails while this waits, and what failed since the last call. If there was more
  /// than one, the error is of the first one's code and its `underlying` error is ``CacheWriteFailures``. When there
  /// is no failure to be thrown, what could not be written earlier is tried again; a value that is no longer in memory
  /// is then removed from storage. What could not be counted or removed, for the limit of storage, is then counted or removed
  /// again.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`, or what the engine throws.
  @concurrent
  public func sync() async throws {
    try Task.checkCancellation()
    schedule { state in
      guard state.failures.isEmpty else { return }
      state.retry()
      retryLimiting(&state)
    }
    if isWrittenBehind { try await inOrder {} }
    if let failure = withState({ $0.failures.take() }) { throw failure }
  }

  /// Removes every entry of this namespace, in memory and in storage, and nothing else in the engine.
  ///
  /// What is assigned before the call is removed; what is assigned while it is under way may be. O(N), and reads
  /// the whole namespace; the removal itself is one batch. Of what another cache, or another process, stores in the
  /// namespace meanwhile, some may be removed and some stay.
  ///
  /// - Throws: what the engine throws. Then nothing has changed, as far as the engine can tell: where it may have done
  ///   its work all the same, as after `io`, or some of it, having no `EngineCapabilities.atomicBatches`, memory forgets
  ///   what storage is to have, and the next reads ask it.
  @concurrent
  public func removeAll() async throws {
    try Task.checkCancellation()
    withState { $0.loads.outdateAll() }
    try await changeAll { [storage] in
      try await storage?.removeAll()
      return { state in
        state.loads.outdateAll()
        state.memory.removeAll { _, _ in true }
        state.unwritten = []
        state.stored = nil
        state.isUncountable = false
      }
    }
  }

  /// Removes what has expired, in memory and in storage. O(N), and reads the whole namespace.
  ///
  /// What has expired is read a second time just before it is removed: an entry that another cache, or another process,
  /// replaces while this searches is safe, unless that happens between these two.
  ///
  /// - Throws: what the engine throws. Then some of what has expired may be gone, from storage and from memory.
  @concurrent
  public func removeExpired() async throws {
    try Task.checkCancellation()
    let now = now()
    try await changeAll { [storage] in
      let removed = try await storage?.removeExpired(at: now) ?? []
      return { state in
        state.memory.removeAll { _, item in item.isExpired(at: now) }
        for key in removed { state.stored?.remove(key) }
      }
    }
  }

  /// Forgets what is in memory, but for what has not been written yet. O(N). A cache without storage forgets everything.
  public func clearMemoryCache() { withState { $0.clearMemory() } }

  /// Changes storage when it is its turn, and then the state in one step.
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
        // Nobody knows what is left, unless the engine refused before it changed anything.
        let mayHaveHappened =
          !(error.precedesChanges && storage?.engine.capabilities.contains(.atomicBatches) == true)
        withState { state in
          state.stored = nil
          if mayHaveHappened { state.clearMemory() }
          state.endChangingAll()
        }
        throw error
      }
    }
  }
}
