import StockroomCore

/// Computes the contents of a query from a table and its changes, off the main actor. Without a delta,
/// everything may have changed.
typealias QueryUpdate<Item: StorableItem> =
  @Sendable (_ table: ItemTable<Item>, _ delta: ItemDelta<Item>?) -> QueryPublication
/// Shows the computed contents. Returns the previous contents, to be released off the main actor.
typealias QueryPublication = @MainActor @Sendable () -> any Sendable

/// A query with sections of any type.
@MainActor protocol FollowingQuery<Item>: AnyObject {
  associatedtype Item: StorableItem

  /// Starts to follow the store, unless that has been done.
  func start()
  /// Whether this many changes take little time on the main actor.
  func hasRoom(for changes: Int) -> Bool
  /// Applies the changes of the store, on the main actor.
  func apply(_ delta: ItemDelta<Item>)
  /// How to make a change that takes long. The store makes no other change until it is published.
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
      // The query is not retained in the meantime.
      let computed = State(definition, items, sequences, unless: { self == nil })
      await self?.adopt(computed, of: computation)
    }
  }

  /// Shows the result of a computation, after applying the changes that were made in the meantime.
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
      // Moved, so that it is not shared and copied.
      progress = .waiting
      deltas.append(delta)
      progress = .computing(deltas)
    case .current:
      // A copy would copy everything that changes, and the `deinit` of an item may read the query.
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
