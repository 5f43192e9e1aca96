import StockroomCore

/// Computes the contents of a query off the main actor, from a new table and its changes. If the delta is nil, everything
/// may have changed.
typealias QueryUpdate<Item: StorableItem> =
  @Sendable (_ table: ItemTable<Item>, _ delta: ItemDelta<Item>?) -> QueryPublication
/// Shows the computed contents. Returns the previous contents, to be released off the main actor.
typealias QueryPublication = @MainActor @Sendable () -> any Sendable

/// A ``StoreQuery`` with any type of sections.
@MainActor protocol FollowingQuery<Item>: AnyObject {
  associatedtype Item: StorableItem

  /// Computes the contents and starts to follow the store. Does nothing if that has been done, or while a new table is
  /// about to replace the store's.
  func start()
  /// Whether this many changes can be applied on the main actor without rehashing many elements.
  func hasRoom(for changes: Int) -> Bool
  /// Applies the changes of the store, on the main actor.
  func apply(_ delta: ItemDelta<Item>)
  /// A closure that updates the query for a change that takes long, off the main actor. The store makes no other change
  /// until the result is published.
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
      // The computation does not retain the query, and stops if it is released.
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
      // The array is moved out of `progress` first: if it were shared, appending would copy it.
      progress = .waiting
      deltas.append(delta)
      progress = .computing(deltas)
    case .current:
      // The state is moved out of the property: if it were shared, the change would copy the parts that it modifies. It is
      // replaced with an empty state, since the `deinit` of an item may read the query meanwhile.
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
