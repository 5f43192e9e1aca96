import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An item of a query.
struct QueryElement<Item: StorableItem, SectionID: Hashable & Comparable & Sendable>: Sendable {
  let item: Item
  /// Its place in the store.
  let sequence: Int
  /// Nil if the query has no sections.
  let section: SectionID?
}

/// What a query asks for.
struct QueryDefinition<Item: StorableItem, SectionID: Hashable & Comparable & Sendable>: Sendable {
  typealias Element = QueryElement<Item, SectionID>

  let predicate: (@Sendable (Item) -> Bool)?
  let order: QueryOrder<Item>
  let section: (@Sendable (Item) -> SectionID)?
  let sectionOrder: SortOrder
  let limit: Int

  /// The item as an element of the query, or nil if the query does not ask for it. Calls the predicate once.
  func element(_ item: Item, _ sequence: Int) -> Element? {
    if let predicate, !predicate(item) { return nil }
    return Element(item: item, sequence: sequence, section: section?(item))
  }

  /// Whether an element comes before another: by section, then in the order asked for, then in that of the store.
  func precedes(_ first: Element, _ second: Element) -> Bool {
    if let one = first.section, let other = second.section {
      let result = compared(one, other).in(sectionOrder)
      if result != .orderedSame { return result == .orderedAscending }
    }
    switch order.compare?(first.item, second.item) ?? .orderedSame {
    case .orderedAscending: return true
    case .orderedDescending: return false
    case .orderedSame: return first.sequence < second.sequence
    }
  }
}

/// The items that a query asks for, sorted: all of them, whatever its limit.
struct QueryState<Item: StorableItem, SectionID: Hashable & Comparable & Sendable>: Sendable {
  typealias Element = QueryElement<Item, SectionID>

  let definition: QueryDefinition<Item, SectionID>
  private(set) var elements = ChunkedArray<Element>()
  /// The sections of the elements, by sequence number. By this and not by the predicate it is decided whether an item is one of
  /// them, so that a predicate that is not a function of the item leaves nothing behind.
  private var sections: [Int: SectionID?] = [:]
  private(set) var sectionIDs: [SectionID] = []
  private(set) var countOfSection: [SectionID: Int] = [:]

  init(_ definition: QueryDefinition<Item, SectionID>) { self.definition = definition }

  /// Filters and sorts items with their sequence numbers, in the order of the store. O(N + M log M), where M of N match.
  init(_ definition: QueryDefinition<Item, SectionID>, _ items: [Item], _ sequences: [Int]) {
    self.definition = definition
    var found: [Element] = []
    for (item, sequence) in zip(items, sequences) {
      if let element = definition.element(item, sequence) { found.append(element) }
    }
    elements = ChunkedArray(sorted(found))
  }

  /// Sorts elements that are in the order of the store, and notes their sections.
  private mutating func sorted(_ found: [Element]) -> [Element] {
    sections.reserveCapacity(found.count)
    var groups: [SectionID: [Int]] = [:]
    for (position, element) in found.enumerated() {
      sections[element.sequence] = .some(element.section)
      if let section = element.section { groups[section, default: []].append(position) }
    }
    let order = definition.sectionOrder
    sectionIDs = groups.keys.sorted { compared($0, $1).in(order) == .orderedAscending }
    countOfSection = groups.mapValues(\.count)
    let compare = definition.order.comparison?(found.map(\.item))
    if compare == nil, definition.section == nil { return found }
    var sorted: [Element] = []
    sorted.reserveCapacity(found.count)
    // Positions are sorted faster than elements, whose type is not known here.
    let parts = definition.section == nil ? [Array(found.indices)] : sectionIDs.compactMap { groups[$0] }
    for var positions in parts {
      if let compare {
        positions.sort { first, second in
          let result = compare(first, second)
          return result == .orderedSame ? first < second : result == .orderedAscending
        }
      }
      for position in positions { sorted.append(found[position]) }
    }
    return sorted
  }

  /// Makes the changes. O(log M) comparisons and one call of the predicate for each.
  ///
  /// - Returns: The first position that has changed; nil if none has.
  mutating func apply(_ delta: ItemDelta<Item>) -> Int? {
    var first: Int?
    if delta.removesAll {
      if elements.count > 0 { first = 0 }
      self = QueryState(definition)
    }
    for change in delta.changes {
      let element = change.item.flatMap { definition.element($0, change.sequence) }
      guard let position = apply(change, element) else { continue }
      first = min(first ?? position, position)
    }
    return first
  }

  private mutating func apply(_ change: ItemDelta<Item>.Change, _ element: Element?) -> Int? {
    let previous = change.previous.flatMap { item in
      sections[change.sequence].map { Element(item: item, sequence: change.sequence, section: $0) }
    }
    let removed = previous.flatMap(position)
    guard let element else {
      if let removed { remove(at: removed) }
      return removed
    }
    if let removed {
      if isInOrder(element, at: removed) {
        _ = elements.replace(at: removed, with: element)
        return removed
      }
      remove(at: removed)
    }
    let inserted = insert(element)
    return min(removed ?? inserted, inserted)
  }

  /// Whether the element may replace the one at this position.
  private func isInOrder(_ element: Element, at position: Int) -> Bool {
    element.section == elements[position].section
      && (position == 0 || definition.precedes(elements[position - 1], element))
      && (position + 1 == elements.count || definition.precedes(element, elements[position + 1]))
  }

  private func position(of element: Element) -> Int? {
    let position = elements.partitioningPosition { !definition.precedes($0, element) }
    if position < elements.count, elements[position].sequence == element.sequence { return position }
    // The order is not one: not transitive, or different from one call to the next.
    return elements.firstPosition { $0.sequence == element.sequence }
  }

  private mutating func remove(at position: Int) {
    let element = elements.remove(at: position)
    sections[element.sequence] = nil
    guard let section = element.section, let count = countOfSection[section] else { return }
    countOfSection[section] = count > 1 ? count - 1 : nil
    if count == 1 { sectionIDs.removeAll { $0 == section } }
  }

  private mutating func insert(_ element: Element) -> Int {
    let position = elements.partitioningPosition { !definition.precedes($0, element) }
    elements.insert(element, at: position)
    sections[element.sequence] = .some(element.section)
    guard let section = element.section else { return position }
    if let count = countOfSection[section] {
      countOfSection[section] = count + 1
    } else {
      countOfSection[section] = 1
      let order = definition.sectionOrder
      let index = sectionIDs.partitioningIndex { compared($0, section).in(order) != .orderedAscending }
      sectionIDs.insert(section, at: index)
    }
    return position
  }
}
