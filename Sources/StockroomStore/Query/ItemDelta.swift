/// The changes of the items of a store, for its queries.
struct ItemDelta<Item: StorableItem>: Sendable {
  /// An item that has been inserted, replaced, or removed.
  struct Change: Sendable {
    /// The sequence number of the item, by which the store is sorted.
    let sequence: Int
    let previous: Item?
    let item: Item?
  }

  /// Whether all items have been removed before the changes.
  var removesAll = false
  /// The changes in the order in which they were made. A moved item is recorded as removed and inserted.
  var changes: [Change] = []
}
