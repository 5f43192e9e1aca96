/// The queries of a store, which does not retain them.
@MainActor struct StoreQueries<Item: StorableItem> {
  private struct Reference {
    weak var query: (any FollowingQuery<Item>)?
  }

  private var references: [Reference] = []
  /// Whether the table of the store is being changed or loaded off the main actor. A query that is created in
  /// the meantime waits for that.
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

  /// How to make a change off the main actor. ``endUpdates()`` must follow.
  mutating func beginUpdates() -> [QueryUpdate<Item>] {
    isTableReplaced = true
    return inUse().map { $0.update() }
  }

  /// Call it when the store has its new table.
  mutating func endUpdates() { isTableReplaced = false }
}
