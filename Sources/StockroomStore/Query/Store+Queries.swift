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
  /// Up to a thousand items of the store are filtered and sorted before this returns, more of them in the background: then
  /// wait for ``StoreQuery/itemsHaveLoaded()``, or show what is there.
  ///
  /// - Parameters:
  ///   - predicate: Whether an item is one of the query's; nil for all. Its result depends on the item alone. Runs on any thread.
  ///   - order: The order of the items.
  ///   - limit: The largest number of items to show; nil for all. The others that match are held as well.
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
  ///   - predicate: Whether an item is one of the query's; nil for all. Its result depends on the item alone. Runs on any thread.
  ///   - order: The order of the items of a section.
  ///   - section: The section of an item. Depends on the item alone. Runs on any thread. Values that are not equal to themselves,
  ///     such as NaN, are one section, greater than all others.
  ///   - sectionOrder: The order of the sections.
  ///   - limit: The largest number of items to show, in all sections together; nil for all.
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
  /// Whether queries follow a change of this many items in about a millisecond. O(queries).
  func isCheapForQueries(_ count: Int) -> Bool {
    if queries.isEmpty { return true }
    let following = queries.inUse()
    return count * following.count <= StoreQueries<Item>.cheapCount
      && following.allSatisfy { $0.hasRoom(for: count) }
  }

  /// Makes a change of the table that has been made on the main actor.
  func update(_ queries: [any FollowingQuery<Item>], _ delta: ItemDelta<Item>?) {
    guard let delta else { return }
    for query in queries { query.apply(delta) }
  }

  /// Makes a change of the table that has been made off the main actor. Returns what was shown before.
  func publish(_ publications: [QueryPublication]) -> [any Sendable] {
    let previous = publications.map { $0() }
    queries.endUpdates()
    for query in queries.inUse() { query.start() }
    return previous
  }

  /// Before a table is published that replaces the present one.
  func beginQueryUpdates() -> [QueryUpdate<Item>] { queries.beginUpdates() }
}
