import StockroomCore

extension Store {
  /// Does the steps as one batch, after all calls that came before.
  ///
  /// Once it waits for its turn it is no longer cancelled, so that a cancelled call does all of its work or none.
  func perform(_ steps: [StoreStep<Item>]) async throws {
    try Task.checkCancellation()
    try await withCheckedThrowingContinuation { continuation in
      waiting.append(Change(steps: steps, continuation: continuation))
      if isCommitting { return }
      isCommitting = true
      // Keeps the store alive until everything has been handed to the engine.
      Task(priority: .userInitiated) { await commitAll() }
    }
  }

  private func commitAll() async {
    while !waiting.isEmpty {
      do {
        try await knowItems()
        await commit(takeWaiting(), table.hashedIdentifiers, isIdentityVerified)
      } catch {
        for change in takeWaiting() { change.continuation.resume(throwing: error) }
      }
    }
    isCommitting = false
  }

  private func takeWaiting() -> [Change] {
    defer { waiting = [] }
    return waiting
  }

  /// Has the engine do the changes as one batch, then does in memory those that it has acknowledged.
  ///
  /// Away from the main actor, where everything is let go of that the changes were made of.
  @concurrent
  nonisolated private func commit(
    _ changes: consuming [Change], _ identifiers: consuming [CacheKey: String], _ isIdentityVerified: Bool
  ) async {
    let changes = changes
    let result = await backend.commit(
      changes.map(\.steps), identifiers: identifiers, isIdentityVerified: isIdentityVerified)
    if var table = await apply(result, of: changes) {
      let steps = result.steps
      let (ofItems, ofUnreadable) = (table.changesItems(steps), table.changesUnreadable(steps))
      let change = table.apply(steps)
      former.keep(await show(consume table, change.events, ofItems, ofUnreadable, result, of: changes))
    }
    // Should loading fail as well, the state says so, and the next change tries again.
    if !result.isCertain { _ = await startLoading().result }
    for (change, outcome) in zip(changes, result.outcomes) {
      if case .failure(let error) = outcome { change.continuation.resume(throwing: error) }
    }
  }

  /// Does to the items what the engine has acknowledged, as one change, if that is little work.
  ///
  /// - Returns: Nil if it is done. If not, the table to do it to, and to hand to ``show(_:_:_:_:_:of:)``.
  private func apply(_ result: StoreBackend<Item>.CommitResult, of changes: [Change]) -> ItemTable<Item>? {
    isIdentityVerified = result.isIdentityVerified
    let steps = result.steps
    guard table.isLittleWork(steps) else {
      let whole = table
      // What there is to see stays, but the keys are not shared, and so not copied.
      table = whole.withoutKeys
      return whole
    }
    var change = ItemTable<Item>.Change()
    withMutations(
      ofItems: table.changesItems(steps), ofUnreadableEntries: table.changesUnreadable(steps)
    ) {
      change = table.apply(steps)
    }
    acknowledge(result, of: changes, change.events)
    return nil
  }

  /// Shows a table that has been changed elsewhere, as one change. What was shown before, to be let go of elsewhere.
  private func show(
    _ changed: consuming ItemTable<Item>, _ events: [StoreEvent<Item>], _ ofItems: Bool, _ ofUnreadable: Bool,
    _ result: StoreBackend<Item>.CommitResult, of changes: [Change]
  ) -> ItemTable<Item> {
    let former = table
    withMutations(ofItems: ofItems, ofUnreadableEntries: ofUnreadable) { table = changed }
    acknowledge(result, of: changes, events)
    return former
  }

  /// Tells the subscribers, and those whose changes have been done.
  private func acknowledge(
    _ result: StoreBackend<Item>.CommitResult, of changes: [Change], _ events: [StoreEvent<Item>]
  ) {
    // Not before the items are those that were acknowledged: whoever looks may load them again now.
    if !result.isCertain { knowledge = .stale }
    for event in events { broadcaster.send(event) }
    for (change, outcome) in zip(changes, result.outcomes) {
      if case .success = outcome { change.continuation.resume() }
    }
  }
}
