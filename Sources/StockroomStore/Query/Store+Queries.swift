import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension Store {
  /// The items for which a predicate holds, sorted, and kept up to date: see ``StoreQuery``.
  ///
  /// ```swift
  /// let open = tasks.query(where: { !$0.isDone }, sortedBy: .by(\.due).then(.by(\.title)), limit: 100)
  /// ```
  ///
  /// If the store has up to a thousand items, they are filtered and sorted before this returns. If it has more, or is
  /// applying a large change off the main actor, this happens in the background: wait for ``StoreQuery/itemsHaveLoaded()``,
  /// or show the query while it is empty.
  ///
  /// - Parameters:
  ///   - predicate: Whether an item belongs to the query; nil for all. Its result must depend on the item
  ///     alone. Runs on any thread.
  ///   - order: The order of the items.
  ///   - limit: The maximum number of items to show; nil for all. All other matching items are held as well.
  public func query(
    where predicate: (@Sendable (Item) -> Bool)? = nil, sortedBy order: QueryOrder<Item> = .stored,
    limit: Int? = nil
  ) -> StoreQuery<Item, Never> {
    follow(
      QueryDefinition(
        predicate: predicate, order: order, section: nil, sectionOrder: .forward, limit: max(0, limit ?? .max)
      ))
  }

  /// The items for which a predicate holds, in sections, sorted, and kept up to date: see ``StoreQuery``.
  ///
  /// ```swift
  /// let byProject = tasks.query(sortedBy: .by(\.due), sectionedBy: { $0.project })
  /// for section in byProject.sections { print(section.id, section.items.count) }
  /// ```
  ///
  /// - Parameters:
  ///   - predicate: Whether an item belongs to the query; nil for all. Its result must depend on the item
  ///     alone. Runs on any thread.
  ///   - order: The order of the items of a section.
  ///   - section: The section of an item. Must depend on the item alone. Runs on any thread. Values that are
  ///     not equal to themselves, such as NaN, form one section, greater than all others.
  ///   - sectionOrder: The order of the sections.
  ///   - limit: The maximum number of items to show, in all sections together; nil for all.
  public func query<SectionID: Hashable & Comparable & Sendable>(
    where predicate: (@Sendable (Item) -> Bool)? = nil, sortedBy order: QueryOrder<Item> = .stored,
    sectionedBy section: @escaping @Sendable (Item) -> SectionID, sectionOrder: SortOrder = .forward,
    limit: Int? = nil
  ) -> StoreQuery<Item, SectionID> {
    follow(
      QueryDefinition(
        predicate: predicate, order: order, section: section, sectionOrder: sectionOrder,
        limit: max(0, limit ?? .max)))
  }

  private func follow<SectionID>(
    _ definition: QueryDefinition<Item, SectionID>
  ) -> StoreQuery<Item, SectionID> {
    let query = StoreQuery(definition, in: self)
    queries.insert(query)
    query.start()
    return query
  }
}

// MARK: - Following

extension Store {
  /// Whether queries can be updated for a change of this many items in about a millisecond. O(queries).
  func isCheapForQueries(_ count: Int) -> Bool {
    if queries.isEmpty { return true }
    let following = queries.inUse()
    return count * following.count <= StoreQueries<Item>.cheapCount
      && following.allSatisfy { $0.hasRoom(for: count) }
  }

  /// Applies to queries a change of the table that was made on the main actor.
  func update(_ queries: [any FollowingQuery<Item>], _ delta: ItemDelta<Item>?) {
    guard let delta else { return }
    for query in queries { query.apply(delta) }
  }

  /// Publishes the contents of queries that were computed off the main actor. Returns their previous contents.
  func publish(_ publications: [QueryPublication]) -> [any Sendable] {
    let previous = publications.map { $0() }
    queries.endUpdates()
    for query in queries.inUse() { query.start() }
    return previous
  }

  /// The closures that update the queries. Call this before a new table is published.
  func beginQueryUpdates() -> [QueryUpdate<Item>] { queries.beginUpdates() }
}
