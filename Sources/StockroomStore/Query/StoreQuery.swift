import Observation
import StockroomCore

/// Some of the items of a ``Store``, sorted, and updated when the store changes.
///
/// ```swift
/// let open = tasks.query(where: { !$0.isDone }, sortedBy: .by(\.due))
/// for task in open.items { print(task.title) }
/// ```
///
/// Once it has been computed (``isLoaded``), its items are always the result of filtering and sorting ``Store/items``: both
/// change in one turn of the main actor. If M items match, a query handles each changed item of the store with one call of
/// the predicate, O(log M) comparisons, and the move of a few hundred elements; it neither reads nor sorts the other items.
/// An incremental change that does not affect ``items`` does not notify their observers; if all items are filtered and
/// sorted again, observers are always notified.
///
/// A query retains its store. The store does not retain its queries: once a query is released, it costs
/// nothing. In addition to the items of the store, a query holds those that match, which takes about 50 bytes
/// each plus the size of an item.
///
/// Filtering and sorting more than a thousand items at once takes place off the main actor, in O(N + M log M): when a query
/// is created, when the store loads its items, and when a call changes many of them.
@MainActor @Observable
public final class StoreQuery<Item: StorableItem, SectionID: Hashable & Comparable & Sendable> {
  typealias Definition = QueryDefinition<Item, SectionID>
  typealias State = QueryState<Item, SectionID>

  enum Progress {
    /// Nothing has been computed. A new table is about to replace the store's.
    case waiting
    /// Another thread filters and sorts. The associated values are the changes that the store has made since then.
    case computing([ItemDelta<Item>])
    /// The contents match the items of the store.
    case current
  }

  /// Whether the items have been computed. It never becomes false again.
  ///
  /// If the store has up to a thousand items, it is true from the beginning, unless the query is created while the store
  /// applies loaded items or a large change off the main actor.
  public internal(set) var isLoaded = false

  @ObservationIgnored var state: State
  @ObservationIgnored var progress = Progress.waiting
  /// Callers that wait for the items.
  @ObservationIgnored var waiting: [CheckedContinuation<Void, Never>] = []
  /// Counts the computations, so that the result of an outdated one is ignored.
  @ObservationIgnored var computation = 0
  let definition: Definition
  /// The store of the query.
  public let store: Store<Item>

  init(_ definition: Definition, in store: Store<Item>) {
    (self.definition, self.store) = (definition, store)
    state = State(definition)
  }

  deinit {
    // Releasing many items takes long.
    if state.elements.count > Self.cheapCount {
      releaseInBackground(exchange(&state, with: State(definition)))
    }
  }

  /// The items that match, sorted, up to the limit. Empty until they have been computed.
  ///
  /// O(1). A retained copy does not change. While a copy is retained, the next change of the query copies a few hundred elements.
  public var items: Results {
    access(keyPath: \.items)
    return Results(state.elements, 0..<visibleCount)
  }

  /// The number of ``items``. O(1).
  public var count: Int {
    access(keyPath: \.items)
    return visibleCount
  }

  /// The number of items that match, regardless of the limit. O(1).
  public var totalCount: Int {
    access(keyPath: \.totalCount)
    return state.elements.count
  }

  /// The ``items`` by section, in the order of the sections; empty if the query has none. Sections without
  /// items are omitted. O(S) for S sections.
  public var sections: [Section] {
    access(keyPath: \.items)
    var sections: [Section] = []
    var start = 0
    for section in state.sections where start < visibleCount {
      let end = start + (state.countOfSection[section] ?? 0)
      sections.append(
        Section(id: section.id, items: Results(state.elements, start..<min(end, visibleCount))))
      start = end
    }
    return sections
  }

  /// Waits until the items have been computed. Cancellation has no effect, since that takes seconds at most.
  ///
  /// This concerns the items that the store holds: it does not wait for ``Store/itemsHaveLoaded()``.
  public func itemsHaveLoaded() async {
    if isLoaded { return }
    await withCheckedContinuation { waiting.append($0) }
  }

  var visibleCount: Int { min(definition.limit, state.elements.count) }

  /// The number of items that are filtered and sorted on the main actor, in about a millisecond.
  nonisolated static var cheapCount: Int { 1_000 }

  /// Replaces the state, and notifies the observers of each property that has changed once.
  ///
  /// - Parameters:
  ///   - first: The first position that has changed; nil if none has.
  ///   - previousCount: The number of elements before.
  func show(_ changed: consuming State, changedFrom first: Int?, previousCount: Int) {
    let count = changed.elements.count
    state = changed
    // Observers are notified after the replacement: the items of the store have changed too, and an observer may read both.
    if let first, first < definition.limit { withMutation(keyPath: \.items) {} }
    if count != previousCount { withMutation(keyPath: \.totalCount) {} }
  }
}

// MARK: - Results

extension StoreQuery {
  /// A snapshot of the items of a query, sorted.
  public struct Results: RandomAccessCollection, Sendable {
    private let elements: ChunkedArray<QueryElement<Item, SectionID>>
    private let range: Range<Int>

    init(_ elements: ChunkedArray<QueryElement<Item, SectionID>>, _ range: Range<Int>) {
      (self.elements, self.range) = (elements, range)
    }

    /// Zero.
    public var startIndex: Int { 0 }

    /// The number of items.
    public var endIndex: Int { range.count }

    /// The item at a position. O(log N).
    public subscript(position: Int) -> Item {
      precondition(indices.contains(position), "The results have \(count) items, and none at \(position).")
      return elements[range.lowerBound + position].item
    }
  }

  /// The items of a query that are in the same section.
  public struct Section: Identifiable, Sendable {
    /// The value that the items have in common.
    public let id: SectionID
    /// The items, in the order of the query. Not empty.
    public let items: Results
  }
}

extension StoreQuery.Results: Equatable where Item: Equatable {
  /// Whether both have equal items in the same order. O(N).
  public static func == (first: Self, second: Self) -> Bool { first.elementsEqual(second) }
}
