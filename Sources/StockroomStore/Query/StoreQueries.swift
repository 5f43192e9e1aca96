/// The queries of a store, which does not retain them.
@MainActor struct StoreQueries<Item: StorableItem> {
  private struct Reference {
    weak var query: (any FollowingQuery<Item>)?
  }

  private var references: [Reference] = []
  /// Whether a new table is about to replace the table of the store: a change is being applied off the main actor, or
  /// loaded items are being filtered for queries. A query that is created in the meantime waits for the new table.
  private(set) var isTableReplaced = false

  /// The number of changed items, times the number of queries, that the main actor can process in about a
  /// millisecond.
  nonisolated static var cheapCount: Int { 256 }

  /// O(1).
  var isEmpty: Bool { references.isEmpty }

  mutating func insert(_ query: some FollowingQuery<Item>) {
    references.removeAll { $0.query == nil }
    references.append(Reference(query: query))
  }

  /// The queries that are still in use. O(queries).
  mutating func inUse() -> [any FollowingQuery<Item>] {
    if references.isEmpty { return [] }
    let queries = references.compactMap(\.query)
    if queries.count < references.count { references.removeAll { $0.query == nil } }
    return queries
  }

  /// The closures that update the queries for a change that is made off the main actor. ``endUpdates()`` must follow.
  mutating func beginUpdates() -> [QueryUpdate<Item>] {
    isTableReplaced = true
    return inUse().map { $0.update() }
  }

  /// Call it when the store has its new table.
  mutating func endUpdates() { isTableReplaced = false }
}
