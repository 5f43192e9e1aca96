/// Something that happened to a ``Store``.
public struct StoreEvent<Item: StorableItem>: Sendable {
  /// What happened.
  public enum Operation: Hashable, Sendable {
    /// The store has been made, and its items have not been loaded yet.
    case initialized
    /// The items have been loaded from the engine.
    case loaded
    /// Items have been inserted, or have replaced others.
    case insert
    /// Items have been removed.
    case remove
  }

  /// What happened.
  public let operation: Operation
  /// The items to which it happened: none, all that were loaded, those inserted, or those removed.
  public let items: [Item]

  /// An event.
  public init(_ operation: Operation, _ items: [Item]) {
    self.operation = operation
    self.items = items
  }
}
