import StockroomCore

extension Store {
  /// Starts to load, unless a load is in progress. There is at most one load, and none while a change is being committed.
  @discardableResult
  func startLoading() -> Task<Void, any Error> {
    if let load { return load }
    let claim = Result { try claimEngine() }
    let started = Task { @concurrent [weak self, backend] in
      do {
        let start = Timestamp.now()
        try claim.get()
        await self?.followBeforeLoading()
        let loaded = try await backend.load(since: start) { completed, total in
          self?.loadingState = .loading(completed: completed, total: total)
        }
        if let self {
          let publications = await beginQueryUpdates().map { $0(loaded, nil) }
          let previous = await adopt(consume loaded, publications)
          deferredRelease.retain(previous.table.withoutKeys, previous.queries)
          withExtendedLifetime(publications) {}
        }
      } catch {
        await self?.loadHasFailed(error)
        throw error
      }
    }
    load = started
    // Not before `load` is set, since an observer may call this method.
    loadingState = .loading(completed: 0, total: nil)
    return started
  }

  /// Claims the engine for this type of items, for the life of this store.
  private func claimEngine() throws {
    if engineClaim == nil, let engine = backend.engine {
      engineClaim = try EngineClaim(of: engine, by: Item.self)
    }
  }

  /// Publishes the loaded items. Returns the previous table and the previous contents of queries, to be
  /// released off the main actor.
  private func adopt(
    _ loaded: consuming ItemTable<Item>, _ queries: [QueryPublication]
  ) -> (table: ItemTable<Item>, queries: [any Sendable]) {
    let previous = table
    withMutations(
      ofItems: true, ofUnreadableEntries: !(previous.unreadable.isEmpty && loaded.unreadable.isEmpty)
    ) {
      // Not earlier: observers are notified before this closure runs, and still read the previous items.
      load = nil
      loadFailure = nil
      itemsState = .current
      table = loaded
      ownWrites = OwnWrites()
    }
    send([StoreEvent(.loaded, loaded.items)])
    let shown = publish(queries)
    loadingState = .loaded
    return (previous, shown)
  }

  private func loadHasFailed(_ error: any Error) {
    load = nil
    loadFailure = error
    loadingState = .failed(error)
  }

  /// Returns once the items match the engine. Waits for a load in progress, and loads the items once if they are not current after
  /// that.
  ///
  /// - Throws: `StorageError` with the code of the error of the load (`io` if that is of another type), which is its
  ///   `underlying` error.
  func ensureLoaded() async throws {
    _ = await load?.result
    if itemsState == .current { return }
    let result = await startLoading().result
    if itemsState == .current { return }
    loadFailure = nil
    var cause: (any Error)?
    if case .failure(let error) = result { cause = error }
    throw StorageError(
      (cause as? StorageError)?.code ?? .io,
      "Nothing has changed, since the items of the store could not be loaded.", underlying: cause)
  }
}

extension Task<Void, Never> {
  /// Waits until the task has ended, the time limit has passed, or the caller is cancelled.
  func waitUntilEnded(within limit: Duration) async {
    let (stream, continuation) = AsyncStream<Never>.makeStream()
    let timer = Task<Void, any Error> {
      try await Task<Never, Never>.sleep(for: limit)
      continuation.finish()
    }
    Task<Void, Never> {
      await value
      continuation.finish()
      timer.cancel()
    }
    for await _ in stream {}
  }
}

extension Task {
  /// Waits until the task has ended.
  ///
  /// - Throws: `CancellationError` as soon as the caller is cancelled; the task continues.
  func waitUntilEnded() async throws {
    let (stream, continuation) = AsyncStream<Never>.makeStream()
    Task<Void, Never> {
      _ = await result
      continuation.finish()
    }
    for await _ in stream {}
    try Task<Never, Never>.checkCancellation()
  }
}
