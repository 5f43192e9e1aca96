/// The queries of a store, which does not retain them.
@MainActor struct StoreQueries<Item: StorableItem> {
  private struct Reference {
    weak var query: (any FollowingQuery<Item>)?
  }

  private var references: [Reference] = []
  /// Whether the table of the store is changed or loaded off the main actor. A query that is created meanwhile waits for it.
  private(set) var isTableReplaced = false

  /// The number of changed items, times that of the queries, that the main actor makes in about a millisecond.
  nonisolated static var cheapCount: Int { 256 }

  /// O(1).
  var isEmpty: Bool { references.isEmpty }

  mutating func insert(_ query: some FollowingQuery<Item>) {
    references.removeAll { $0.query == nil }
    references.append(Reference(query: query))
  }

  /// Those that are still in use. O(queries).
  mutating func inUse() -> [any FollowingQuery<Item>] {
    if references.isEmpty { return [] }
    let queries = references.compactMap(\.query)
    if queries.count < references.count { references.removeAll { $0.query == nil } }
    return queries
  }

  /// How to make a change off the main actor. ``endUpdates()`` has to follow.
  mutating func beginUpdates() -> [QueryUpdate<Item>] {
    isTableReplaced = true
    return inUse().map { $0.update() }
  }

  /// The store has its new table.
  mutating func endUpdates() { isTableReplaced = false }
}
