import StockroomCore

extension Store {
  /// Applies the steps as one batch, after all earlier calls.
  ///
  /// Once the batch is queued, it can no longer be cancelled, so that a cancelled call does all of its work or none.
  func perform(_ steps: consuming [StoreStep<Item>]) async throws {
    try Task.checkCancellation()
    // The steps are moved into the change, so that their items are released with it, off the main actor: releasing many takes long.
    var steps: [StoreStep<Item>]? = steps
    try await withCheckedThrowingContinuation { continuation in
      waiting.append(Change(steps: steps.take() ?? [], continuation: continuation))
      startCommitting()
    }
  }

  /// Starts to commit the waiting changes, unless that is in progress.
  func startCommitting() {
    if isCommitting { return }
    isCommitting = true
    // The task retains the store until the engine has completed all changes of this store.
    Task(priority: .userInitiated) { await commitAll() }
  }

  private func commitAll() async {
    while true {
      if case .none = pendingChange {} else { await readPendingChange() }
      if waiting.isEmpty { break }
      await startFollowing()?.value
      do {
        try await ensureLoaded()
        resumeBatchWaiters()
        let changes = takeNext()
        guard let plan = undoPlan(for: changes) else {
          for change in changes { change.continuation.resume() }
          continue
        }
        await commit(consume changes, table.hashedIdentifiers, isIdentityVerified, consume plan)
      } catch {
        var failed = exchange(&waiting, with: Queue())
        while let change = failed.popFirst() { change.continuation.resume(throwing: error) }
      }
    }
    isCommitting = false
    resumeBatchWaiters()
    // Others may change entries all the time, so reading their changes does not retain a store that has no other references.
    if case .none = pendingChange { return }
    Task(priority: .userInitiated) { [weak self] in self?.startCommitting() }
  }

  /// Waits until the next batch is about to be committed, or no changes are left.
  func waitForNextBatch() async {
    if !isCommitting { return }
    await withCheckedContinuation { batchWaiters.append($0) }
  }

  private func resumeBatchWaiters() {
    for continuation in exchange(&batchWaiters, with: []) { continuation.resume() }
  }

  /// Writes the changes to the engine as one batch, then applies those that it has acknowledged to the items.
  ///
  /// Runs off the main actor, and releases all parts of the changes there.
  @concurrent
  nonisolated private func commit(
    _ changes: consuming [Change], _ identifiers: consuming [CacheKey: String], _ isIdentityVerified: Bool,
    _ plan: consuming UndoPlan
  ) async {
    let changes = changes
    var restoresOld = false
    if case .revert = plan { restoresOld = true }
    var result = await backend.commit(
      changes.map(\.steps), identifiers: identifiers, isIdentityVerified: isIdentityVerified, plan)
    if !restoresOld { backend.forgetOldVersions(of: result.steps) }
    if var (table, queries) = await apply(result, of: changes) {
      let steps = result.steps
      result.undo.sort(as: table, isIndexed: backend.codec.isVersioned)
      let (ofItems, ofUnreadable) = (table.changesItems(steps), table.changesUnreadable(steps))
      let change = table.apply(steps, forQueries: !queries.isEmpty)
      let publications = queries.map { $0(table, change.delta) }
      queries = []
      let previous = await publish(
        consume table, change.events, ofItems, ofUnreadable, publications, result, of: changes)
      deferredRelease.retain(previous.table.withoutKeys, previous.queries)
      // Otherwise an optimized build releases them where they are used last, on the main actor.
      withExtendedLifetime((change, publications)) {}
    }
    // If loading fails too, `loadingState` reports it, and the next change retries.
    if !result.isOutcomeKnown { _ = await startLoading().result }
    for (change, outcome) in zip(changes, result.outcomes) {
      if case .failure(let error) = outcome { change.continuation.resume(throwing: error) }
    }
  }

  /// Applies the acknowledged changes to the items, as one change, if that is cheap.
  ///
  /// - Returns: Nil if the changes have been applied. Otherwise the table, to be changed off the main actor and passed to
  ///   ``publish(_:_:_:_:_:_:of:)``, and the closures that update the queries.
  private func apply(
    _ result: StoreBackend<Item>.CommitResult, of changes: [Change]
  ) -> (table: ItemTable<Item>, queries: [QueryUpdate<Item>])? {
    isIdentityVerified = result.isIdentityVerified
    let steps = result.steps
    guard table.isCheap(steps), isCheapForQueries(table.changedCount(steps)) else {
      // The store keeps its table, so the change copies the parts that it modifies, off the main actor.
      return (table, queries.beginUpdates())
    }
    var result = result
    result.undo.sort(as: table, isIndexed: backend.codec.isVersioned)
    var change = ItemTable<Item>.Change()
    var following: [any FollowingQuery<Item>] = []
    withMutations(
      ofItems: table.changesItems(steps), ofUnreadableEntries: table.changesUnreadable(steps)
    ) {
      // Determined here, since observers may have just created queries, which must be updated. Queries that are created after the
      // change already contain it.
      following = queries.inUse()
      change = table.apply(steps, forQueries: !following.isEmpty)
    }
    send(change.events)
    update(following, change.delta)
    acknowledge(result, of: changes)
    return nil
  }

  /// Publishes a table that has been changed off the main actor, as one change. Returns the previous one and
  /// the previous contents of queries, to be released off the main actor.
  private func publish(
    _ changed: consuming ItemTable<Item>, _ events: [StoreEvent<Item>], _ ofItems: Bool, _ ofUnreadable: Bool,
    _ queries: [QueryPublication], _ result: StoreBackend<Item>.CommitResult, of changes: [Change]
  ) -> (table: ItemTable<Item>, queries: [any Sendable]) {
    let previous = table
    withMutations(ofItems: ofItems, ofUnreadableEntries: ofUnreadable) { table = changed }
    send(events)
    let shown = publish(queries)
    acknowledge(result, of: changes)
    return (previous, shown)
  }

  /// Records changes for undo, and resumes the callers of successful changes.
  private func acknowledge(_ result: StoreBackend<Item>.CommitResult, of changes: [Change]) {
    // Not before the items have changed: once the state is `stale`, an observer of the items may start to load them again.
    if !result.isOutcomeKnown { itemsState = .stale }
    ownWrites.add(result.written)
    record(result.undo, of: changes)
    for (change, outcome) in zip(changes, result.outcomes) {
      guard case .success = outcome else { continue }
      noteRewriting(by: change)
      change.continuation.resume()
    }
  }
}
