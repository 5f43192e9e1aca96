import StockroomCore

/// Computes what a query shows from a table and what has changed in it, off the main actor. Without a delta, everything may
/// have changed.
typealias QueryUpdate<Item: StorableItem> =
  @Sendable (_ table: ItemTable<Item>, _ delta: ItemDelta<Item>?) -> QueryPublication
/// Shows what has been computed. Returns what was shown before, to be released off the main actor.
typealias QueryPublication = @MainActor @Sendable () -> any Sendable

/// A query of any sections.
@MainActor protocol FollowingQuery<Item>: AnyObject {
  associatedtype Item: StorableItem

  /// Begins to follow, unless it does so.
  func start()
  /// Whether so many changes take little time on the main actor.
  func hasRoom(for changes: Int) -> Bool
  /// Makes what has changed in the store, on the main actor.
  func apply(_ delta: ItemDelta<Item>)
  /// How to make a change that takes long. Until it is published the store makes no other.
  func update() -> QueryUpdate<Item>
}

extension StoreQuery: FollowingQuery {
  func start() {
    guard case .waiting = progress, !store.queries.isTableReplaced else { return }
    let (items, sequences) = (store.table.table.elements, store.table.table.sequences)
    if items.count <= Self.cheapCount { return adopt(State(definition, items, sequences), changedFrom: 0) }
    computation += 1
    progress = .computing([])
    Task { @concurrent [weak self, definition, computation] in
      // The query is not retained meanwhile.
      let computed = State(definition, items, sequences, unless: { self == nil })
      await self?.adopt(computed, of: computation)
    }
  }

  /// Shows the result of a computation, once it contains what has changed meanwhile.
  private func adopt(_ computed: consuming State, of computation: Int) {
    guard computation == self.computation, case .computing(let deltas) = progress else { return }
    if deltas.reduce(0, { $0 + $1.changes.count }) <= StoreQueries<Item>.cheapCount {
      for delta in deltas { _ = computed.apply(delta) }
      return adopt(computed, changedFrom: 0)
    }
    progress = .computing([])
    Task { @concurrent [weak self, computed] in
      var computed = computed
      for delta in deltas { _ = computed.apply(delta) }
      computed.makeRoom()
      await self?.adopt(computed, of: computation)
    }
  }

  private func adopt(_ computed: consuming State, changedFrom first: Int?) {
    computation += 1
    progress = .current
    show(computed, changedFrom: first, previousCount: state.elements.count)
    if isLoaded { return }
    isLoaded = true
    for continuation in exchange(&waiting, with: []) { continuation.resume() }
  }

  func hasRoom(for changes: Int) -> Bool { state.hasRoom(for: changes) }

  func apply(_ delta: ItemDelta<Item>) {
    switch progress {
    case .waiting: break
    case .computing(var deltas):
      // Not shared, and so not copied.
      progress = .waiting
      deltas.append(delta)
      progress = .computing(deltas)
    case .current:
      // A copy would be a copy of everything that changes. And the `deinit` of an item may read the query.
      let count = state.elements.count
      var changed = exchange(&state, with: State(definition))
      let first = changed.apply(delta)
      show(changed, changedFrom: first, previousCount: count)
    }
  }

  func update() -> QueryUpdate<Item> {
    var current: State?
    if case .current = progress { current = state }
    return { [weak self, definition, current] table, delta in
      let computed: State
      var first: Int? = 0
      if var changed = current, let delta, delta.changes.count < table.table.count / 8 {
        first = changed.apply(delta)
        changed.makeRoom()
        computed = changed
      } else {
        computed = State(
          definition, table.table.elements, table.table.sequences, unless: { self == nil })
      }
      return {
        let previous = self?.state
        self?.adopt(computed, changedFrom: first)
        return previous
      }
    }
  }
}
