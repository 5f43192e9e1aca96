import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An item of a query.
struct QueryElement<Item: StorableItem, SectionID: Hashable & Comparable & Sendable>: Sendable {
  let item: Item
  /// Its sequence number in the store.
  let sequence: Int
  /// Nil if the query has no sections.
  let section: QuerySection<SectionID>?
}

/// The section of an element. Values that are not equal to themselves, such as NaN, could neither be found nor sorted, so
/// they form one section, greater than all others.
struct QuerySection<ID: Hashable & Comparable & Sendable>: Hashable, Comparable, Sendable {
  let id: ID

  private var equalsItself: Bool {
    let same = id
    return id == same
  }

  static func == (first: Self, second: Self) -> Bool {
    first.equalsItself ? first.id == second.id : !second.equalsItself
  }

  static func < (first: Self, second: Self) -> Bool {
    guard first.equalsItself else { return false }
    return !second.equalsItself || first.id < second.id
  }

  func hash(into hasher: inout Hasher) { if equalsItself { hasher.combine(id) } }
}

/// The parameters of a query.
struct QueryDefinition<Item: StorableItem, SectionID: Hashable & Comparable & Sendable>: Sendable {
  typealias Element = QueryElement<Item, SectionID>

  let predicate: (@Sendable (Item) -> Bool)?
  let order: QueryOrder<Item>
  let section: (@Sendable (Item) -> SectionID)?
  let sectionOrder: SortOrder
  let limit: Int

  /// The item as an element of the query, or nil if it does not match. Calls the predicate once.
  func element(_ item: Item, _ sequence: Int) -> Element? {
    if let predicate, !predicate(item) { return nil }
    return Element(item: item, sequence: sequence, section: section.map { QuerySection(id: $0(item)) })
  }

  /// Whether an element comes before another: by section, then in the order of the query, then in the order of the store.
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

/// The items that match a query, sorted: all of them, regardless of its limit.
struct QueryState<Item: StorableItem, SectionID: Hashable & Comparable & Sendable>: Sendable {
  typealias Element = QueryElement<Item, SectionID>
  typealias Section = QuerySection<SectionID>

  let definition: QueryDefinition<Item, SectionID>
  private(set) var elements = ChunkedArray<Element>()
  /// The sections of the elements, by sequence number. This dictionary, and not the predicate, determines whether a
  /// previous item is one of the elements. So a removed item is always found, even if the predicate does not depend on the
  /// item alone.
  private var sectionOfSequence: [Int: Section?] = [:]
  /// The sections that have elements, in the order of the definition.
  private(set) var sections: [Section] = []
  private(set) var countOfSection: [Section: Int] = [:]

  init(_ definition: QueryDefinition<Item, SectionID>) { self.definition = definition }

  /// Filters and sorts items with their sequence numbers, in the order of the store. O(N + M log M), where M of N match.
  ///
  /// - Parameter isReleased: Returns whether the result is no longer needed. If so, filtering stops, and the result is incomplete.
  init(
    _ definition: QueryDefinition<Item, SectionID>, _ items: [Item], _ sequences: [Int],
    unless isReleased: () -> Bool = { false }
  ) {
    self.definition = definition
    var found: [Element] = []
    for (number, (item, sequence)) in zip(items, sequences).enumerated() {
      if number.isMultiple(of: 256), isReleased() { return }
      if let element = definition.element(item, sequence) { found.append(element) }
    }
    if isReleased() { return }
    elements = ChunkedArray(sorted(found))
    makeRoom()
  }

  /// Sorts elements that are in the order of the store, and records their sections.
  private mutating func sorted(_ found: [Element]) -> [Element] {
    sectionOfSequence.reserveCapacity(found.count + found.count / 8)
    var groups: [Section: [Int]] = [:]
    for (position, element) in found.enumerated() {
      sectionOfSequence[element.sequence] = .some(element.section)
      if let section = element.section { groups[section, default: []].append(position) }
    }
    let order = definition.sectionOrder
    sections = groups.keys.sorted { compared($0, $1).in(order) == .orderedAscending }
    countOfSection = groups.mapValues(\.count)
    let compare = definition.order.comparison?(found.map(\.item))
    if compare == nil, definition.section == nil { return found }
    var sorted: [Element] = []
    sorted.reserveCapacity(found.count)
    // Sorting positions is faster than sorting elements, whose type is generic here.
    let parts = definition.section == nil ? [Array(found.indices)] : sections.compactMap { groups[$0] }
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

  /// Applies changes. O(log M) comparisons and one call of the predicate for each.
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
      sectionOfSequence[change.sequence].map { Element(item: item, sequence: change.sequence, section: $0) }
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
    // Reached only if the order is not valid: it is not transitive, or differs from one call to the next.
    return elements.firstPosition { $0.sequence == element.sequence }
  }

  private mutating func remove(at position: Int) {
    let element = elements.remove(at: position)
    sectionOfSequence[element.sequence] = nil
    guard let section = element.section, let count = countOfSection[section] else { return }
    countOfSection[section] = count > 1 ? count - 1 : nil
    if count > 1 { return }
    let index = index(of: section)
    if index < sections.count, sections[index] == section {
      sections.remove(at: index)
    } else {
      // Reached only if the order of the sections is not valid.
      sections.removeAll { $0 == section }
    }
  }

  /// The index of a section, or where it is to be inserted. O(log S).
  private func index(of section: Section) -> Int {
    let order = definition.sectionOrder
    return sections.partitioningIndex { compared($0, section).in(order) != .orderedAscending }
  }

  private mutating func insert(_ element: Element) -> Int {
    let position = elements.partitioningPosition { !definition.precedes($0, element) }
    elements.insert(element, at: position)
    sectionOfSequence[element.sequence] = .some(element.section)
    guard let section = element.section else { return position }
    if let count = countOfSection[section] {
      countOfSection[section] = count + 1
    } else {
      countOfSection[section] = 1
      sections.insert(section, at: index(of: section))
    }
    return position
  }
}

// MARK: - Room

extension QueryState {
  /// The number of elements that are rehashed on the main actor, in about a millisecond.
  private static var cheapCount: Int { 4_096 }

  /// Whether this many elements can be inserted without rehashing many others. O(1).
  func hasRoom(for added: Int) -> Bool {
    func suffices(_ capacity: Int, for count: Int) -> Bool {
      count <= Self.cheapCount || capacity - count >= added
    }
    return suffices(sectionOfSequence.capacity, for: sectionOfSequence.count)
      && suffices(countOfSection.capacity, for: countOfSection.count)
      && suffices(sections.capacity, for: sections.count)
  }

  /// Reserves capacity for the insertions that the main actor makes at once, in proportion to the number of elements. O(M),
  /// or O(1) if the capacity suffices.
  mutating func makeRoom() {
    if hasRoom(for: StoreQueries<Item>.cheapCount) { return }
    sectionOfSequence.reserveCapacity(sectionOfSequence.count + sectionOfSequence.count / 8)
    countOfSection.reserveCapacity(countOfSection.count + countOfSection.count / 8)
    sections.reserveCapacity(sections.count + sections.count / 8)
  }
}
