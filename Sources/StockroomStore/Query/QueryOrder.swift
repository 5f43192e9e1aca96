#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The order of the items of a ``StoreQuery``. Items that the order does not distinguish are in the order of the store.
///
/// ```swift
/// tasks.query(where: { !$0.isDone }, sortedBy: .by(\.due).then(.by(\.title)))
/// ```
///
/// The order is computed on any thread and must depend on the items alone: two items must always compare in the same way.
public struct QueryOrder<Item>: Sendable {
  /// Nil if the order distinguishes no items.
  let compare: (@Sendable (Item, Item) -> ComparisonResult)?
  /// Returns a function that compares the items at two positions of an array. It reads the compared value of each item only
  /// once. Nil if `compare` is nil.
  let comparison: (@Sendable ([Item]) -> (Int, Int) -> ComparisonResult)?

  private init(
    _ compare: (@Sendable (Item, Item) -> ComparisonResult)?,
    _ comparison: (@Sendable ([Item]) -> (Int, Int) -> ComparisonResult)?
  ) {
    (self.compare, self.comparison) = (compare, comparison)
  }

  private init(compare: @escaping @Sendable (Item, Item) -> ComparisonResult) {
    self.init(compare, { items in { compare(items[$0], items[$1]) } })
  }

  /// An order by a value of each item.
  private init<Value>(
    of value: @escaping @Sendable (Item) -> Value,
    by compare: @escaping @Sendable (Value, Value) -> ComparisonResult
  ) {
    self.init(
      { compare(value($0), value($1)) },
      { items in
        let values = items.map(value)
        return { compare(values[$0], values[$1]) }
      })
  }

  /// The order of the store.
  public static var stored: QueryOrder { QueryOrder(nil, nil) }

  /// An order by a predicate that returns whether the first item comes before the second, as for `sort(by:)`:
  /// a strict weak order.
  public init(_ areInIncreasingOrder: @escaping @Sendable (Item, Item) -> Bool) {
    self.init(compare: { first, second in
      if areInIncreasingOrder(first, second) { return .orderedAscending }
      return areInIncreasingOrder(second, first) ? .orderedDescending : .orderedSame
    })
  }

  /// The order of a property, which must not be isolated to an actor.
  public static func by<Value: Comparable & SendableMetatype>(
    _ property: KeyPath<Item, Value>, _ order: SortOrder = .forward
  ) -> QueryOrder {
    // Safe to share: a key path is immutable, and the property is not isolated to an actor, as required above.
    nonisolated(unsafe) let property = property
    return QueryOrder(of: { $0[keyPath: property] }, by: { compared($0, $1).in(order) })
  }

  /// The order of a property that may be nil: nil is less than any value.
  public static func by<Value: Comparable & SendableMetatype>(
    _ property: KeyPath<Item, Value?>, _ order: SortOrder = .forward
  ) -> QueryOrder {
    nonisolated(unsafe) let property = property
    return QueryOrder(
      of: { $0[keyPath: property] },
      by: { first, second in
        let result: ComparisonResult =
          switch (first, second) {
          case (nil, nil): .orderedSame
          case (nil, _?): .orderedAscending
          case (_?, nil): .orderedDescending
          case (let first?, let second?): compared(first, second)
          }
        return result.in(order)
      })
  }

  /// The order of one of Foundation's sort comparators, such as `KeyPathComparator(\.title)`.
  public static func using(_ comparator: some SortComparator<Item> & Sendable) -> QueryOrder {
    QueryOrder(compare: { comparator.compare($0, $1) })
  }

  /// This order, followed by another one for the items that this one does not distinguish.
  public func then(_ other: QueryOrder) -> QueryOrder {
    guard let compare, let comparison else { return other }
    guard let next = other.compare, let nextComparison = other.comparison else { return self }
    return QueryOrder(
      { first, second in
        let result = compare(first, second)
        return result == .orderedSame ? next(first, second) : result
      },
      { items in
        let (compare, next) = (comparison(items), nextComparison(items))
        return { first, second in
          let result = compare(first, second)
          return result == .orderedSame ? next(first, second) : result
        }
      })
  }
}

/// The order of two values.
func compared<Value: Comparable>(_ first: Value, _ second: Value) -> ComparisonResult {
  if first < second { return .orderedAscending }
  return second < first ? .orderedDescending : .orderedSame
}

extension ComparisonResult {
  /// The result for values that are sorted forward or in reverse.
  func `in`(_ order: SortOrder) -> ComparisonResult {
    switch (order, self) {
    case (.forward, _), (_, .orderedSame): self
    case (.reverse, .orderedAscending): .orderedDescending
    case (.reverse, .orderedDescending): .orderedAscending
    }
  }
}
