/// A change of a ``Store``.
public struct StoreEvent<Item: StorableItem>: Sendable {
  /// The kind of a change.
  public enum Operation: Hashable, Sendable {
    /// The store has been created, and its items have not been loaded yet.
    case initialized
    /// The items have been loaded from the engine.
    case loaded
    /// Items have been inserted, or have replaced others.
    case insert
    /// Items have been removed.
    case remove
  }

  /// The kind of the change.
  public let operation: Operation
  /// The affected items: for `initialized` none; for `loaded` all items; for `insert` and `remove` the inserted or removed items.
  public let items: [Item]

  /// Creates an event.
  public init(_ operation: Operation, _ items: [Item]) {
    self.operation = operation
    self.items = items
  }
}
