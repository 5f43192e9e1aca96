import StockroomCore

// Changes by others in the engine: other stores, other processes, other programs (rule S9).

extension Store {
  /// Changes by others that have not been applied to the items yet.
  enum PendingChange {
    case none
    case keys(Set<CacheKey>)
    case everything
  }

  /// Subscribes to the changes of others, unless this store has done so or a subscription is in progress. If subscribing fails, the
  /// next change of this store retries, and so does a timer.
  ///
  /// - Returns: The subscription in progress. Wait for its end before reading, so that no change is missed. Nil if there is
  ///   none, or if an earlier one has failed: everything is read again once a subscription succeeds, so no change needs to
  ///   wait for another attempt, which may take long.
  func startFollowing() -> Task<Void, Never>? {
    if isFollowing { return nil }
    if let subscription { return mayHaveMissedChanges ? nil : subscription }
    let started = Task<Void, Never> { @concurrent [weak self, backend] in
      do {
        let changes = try await backend.changes()
        await self?.follow(changes)
      } catch {
        await self?.subscriptionHasFailed(error)
      }
    }
    subscription = started
    return mayHaveMissedChanges ? nil : started
  }

  /// Subscribes before a load reads, so that no change is missed.
  ///
  /// Subscribing waits for writers, and reads must not (rule T5). So the load continues after ``subscriptionTimeout``, and
  /// everything is read again once the subscription is complete.
  func followBeforeLoading() async {
    guard let subscription = startFollowing() else { return }
    await subscription.waitUntilEnded(within: subscriptionTimeout)
    if self.subscription != nil { mayHaveMissedChanges = true }
  }

  private func subscriptionHasFailed(_ error: any Error) {
    subscription = nil
    mayHaveMissedChanges = true
    // Not retried: an engine that is closed, or does not support a feed, will not provide one later.
    if let code = (error as? StorageError)?.code, [.closed, .unsupported].contains(code) { return }
    let pause = resubscriptionDelay
    resubscriptionDelay = min(pause * 2, .seconds(60))
    Task { [weak self] in
      try await Task.sleep(for: pause)
      _ = self?.startFollowing()
    }
  }

  private func follow(_ changes: StorageChanges?) {
    subscription = nil
    isFollowing = true
    guard let changes else { return }
    if mayHaveMissedChanges {
      mayHaveMissedChanges = false
      note(.everything)
    }
    feed = Task { [weak self] in
      for await change in changes { self?.note(change) }
    }
  }

  /// Records a change by others. It is read after the batch of this store that is being committed.
  func note(_ change: StorageChange) {
    switch (pendingChange, change) {
    case (.none, .keys(let keys)): pendingChange = .keys(keys)
    case (.keys(let keys), .keys(let others))
    where keys.count + others.count <= StorageChanges.defaultKeyLimit:
      pendingChange = .keys(keys.union(others))
    default: pendingChange = .everything
    }
    startCommitting()
  }

  /// Reads the changes of others, and updates the items to match.
  func readPendingChange() async {
    let pending = exchange(&pendingChange, with: .none)
    do {
      if itemsState != .current {
        // A load that begins now reads the change. A load in progress may have read the entries before the change.
        let mayLackIt = load != nil
        try await ensureLoaded()
        if !mayLackIt { return }
      }
      switch pending {
      case .none: break
      case .keys(let keys): try await apply(stateOf: keys)
      case .everything: try await reload()
      }
    } catch {
      // A failed load is reported in `loadingState`, and the next change by this store or others retries it.
      if itemsState != .current { return }
      // A failed read of single entries is not reported. So everything is loaded once, and a failure of that is reported.
      itemsState = .stale
      _ = await startLoading().result
    }
  }

  private func reload() async throws {
    itemsState = .stale
    try await ensureLoaded()
  }

  private func apply(stateOf keys: Set<CacheKey>) async throws {
    var state = withoutReported(try await backend.state(of: keys))
    if state.count == 0 { return }
    switch table.need(for: state) {
    case .nothing: break
    case .sequences(let items):
      state = withoutReported(try await backend.state(of: keys, and: items))
    case .everything: return try await reload()
    }
    // Others may have inserted more in the meantime.
    if case .everything = await need(for: state) { return try await reload() }
    for key in state.absent { ownWrites.forget(key) }
    for entry in state.changed where !entry.isReported { ownWrites.forget(entry.key) }
    await applyFollowed(state)
  }

  /// The state without the entries that the items already contain. Entries that this store has written and others have
  /// moved stay, and are marked with `isReported`.
  private func withoutReported(_ state: EngineState<Item>) -> EngineState<Item> {
    var state = table.withoutLoaded(state)
    for (index, entry) in state.changed.enumerated() where ownWrites.contains(entry.digest, of: entry.key) {
      state.changed[index].isReported = true
    }
    if table.hasEngineOrder, state.hasSequences {
      state.changed.removeAll { $0.isReported && $0.sequence == table.sequence(of: $0.key) }
    }
    return state
  }

  /// Like `ItemTable.need(for:)`, off the main actor if the state has the sequence numbers of many items.
  private func need(for state: EngineState<Item>) async -> ItemTable<Item>.Need {
    state.sequences.count <= 1_000 ? table.need(for: state) : await Self.need(for: state, in: table)
  }

  @concurrent
  nonisolated private static func need(
    for state: EngineState<Item>, in table: ItemTable<Item>
  ) async -> ItemTable<Item>.Need {
    table.need(for: state)
  }

  private func applyFollowed(_ state: EngineState<Item>) async {
    let ofUnreadable = !table.unreadable.isEmpty || state.changed.contains { !$0.isReadable }
    guard table.isCheap(state), isCheapForQueries(state.count) else {
      return await applyElsewhere(state, to: table, ofUnreadable, queries.beginUpdates())
    }
    var change = ItemTable<Item>.Change()
    var following: [any FollowingQuery<Item>] = []
    withMutations(ofItems: true, ofUnreadableEntries: ofUnreadable) {
      following = queries.inUse()
      change = table.apply(state, forQueries: !following.isEmpty)
    }
    send(change.events)
    update(following, change.delta)
  }

  @concurrent
  nonisolated private func applyElsewhere(
    _ state: EngineState<Item>, to whole: consuming ItemTable<Item>, _ ofUnreadable: Bool,
    _ queries: consuming [QueryUpdate<Item>]
  ) async {
    let change = whole.apply(state, forQueries: !queries.isEmpty)
    let publications = queries.map { $0(whole, change.delta) }
    queries = []
    let previous = await publishFollowed(consume whole, change.events, ofUnreadable, publications)
    deferredRelease.retain(previous.table.withoutKeys, previous.queries)
    // As in `commit`.
    withExtendedLifetime((change, publications)) {}
  }

  private func publishFollowed(
    _ changed: consuming ItemTable<Item>, _ events: [StoreEvent<Item>], _ ofUnreadable: Bool,
    _ queries: [QueryPublication]
  ) -> (table: ItemTable<Item>, queries: [any Sendable]) {
    let previous = table
    withMutations(ofItems: true, ofUnreadableEntries: ofUnreadable) { table = changed }
    send(events)
    return (previous, publish(queries))
  }
}

extension EngineState.Entry {
  var isReadable: Bool {
    if case .success = content { true } else { false }
  }
}
