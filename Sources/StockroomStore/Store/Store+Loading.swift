import StockroomCore

extension Store {
  /// Begins to load, unless a load is under way. There is never more than one, and none while a change is.
  @discardableResult
  func startLoading() -> Task<Void, any Error> {
    if let load { return load }
    loadingState = .loading(completed: 0, total: nil)
    let claim = Result { try claimEngine() }
    let started = Task { @concurrent [weak self, backend] in
      do {
        try claim.get()
        let loaded = try await backend.load { completed, total in
          self?.loadingState = .loading(completed: completed, total: total)
        }
        if let self { former.keep(await adopt(consume loaded)) }
      } catch {
        await self?.loadHasFailed(error)
        throw error
      }
    }
    load = started
    return started
  }

  /// Keeps stores of other types of items from the engine, as long as this store lives.
  private func claimEngine() throws {
    if engineUse == nil, let engine = backend.engine { engineUse = try EngineUse(of: engine, by: Item.self) }
  }

  /// Shows what has been loaded. What was shown before, to be let go of elsewhere.
  private func adopt(_ loaded: consuming ItemTable<Item>) -> ItemTable<Item> {
    let former = table
    load = nil
    knowledge = .current
    withMutations(
      ofItems: true, ofUnreadableEntries: !(former.unreadable.isEmpty && loaded.unreadable.isEmpty)
    ) {
      table = loaded
    }
    loadingState = .loaded
    broadcaster.send(StoreEvent(.loaded, loaded.items))
    return former
  }

  private func loadHasFailed(_ error: any Error) {
    load = nil
    loadFailure = error
    isLoadFailureKnown = false
    loadingState = .failed(error)
  }

  /// Returns once the items are what the engine holds. Loads them if need be: once, after a load that is under way.
  ///
  /// - Throws: `StorageError`, with the code and the cause of the failure to load them.
  func knowItems() async throws {
    _ = await load?.result
    if knowledge == .current { return }
    let result = await startLoading().result
    if knowledge == .current { return }
    isLoadFailureKnown = true
    var cause = loadFailure
    if case .failure(let error) = result { cause = error }
    throw StorageError(
      (cause as? StorageError)?.code ?? .io,
      "Nothing has been changed, since the items of the store could not be loaded.", underlying: cause)
  }
}

extension Task {
  /// Waits until the task has ended.
  ///
  /// - Throws: `CancellationError` as soon as the caller is cancelled; the task goes on.
  func hasEnded() async throws {
    let (stream, continuation) = AsyncStream<Never>.makeStream()
    Task<Void, Never> {
      _ = await result
      continuation.finish()
    }
    for await _ in stream {}
    try Task<Never, Never>.checkCancellation()
  }
}
