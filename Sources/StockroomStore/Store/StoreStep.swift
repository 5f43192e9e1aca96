import StockroomCore

/// One change of a call or a chain.
enum StoreStep<Item: StorableItem>: Sendable {
  case insert([Item])
  case remove([Item])
  case removeAll
  /// The only step of its change, since it must read before its operations are known.
  case update(StoreUpdate<Item>)
  /// The only step of its change, since its effect depends on the changes before it.
  case revert(StoreReversal)
  /// The only step of its change. Changes no item.
  case rewrite(StoreRewriting)

  /// The number of items that the step names.
  var itemCount: Int {
    switch self {
    case .insert(let items), .remove(let items): items.count
    case .removeAll, .update, .rewrite, .revert: 0
    }
  }
}

/// A change of one item that depends on its stored state.
final class StoreUpdate<Item: StorableItem>: Sendable {
  /// Its raw value is the identifier of the item.
  let key: CacheKey
  /// Whether the change also runs if there is no item, and nothing is written if it does not change the item.
  let isModification: Bool
  /// Receives the stored item and changes it in place. The result is stored; nil removes the item.
  let change: @Sendable (inout Item?) throws -> Void
  /// The changed item, once that is known.
  let result = MutexProtected<Item?>(nil)

  private init(
    _ key: CacheKey, isModification: Bool, _ change: @escaping @Sendable (inout Item?) throws -> Void
  ) {
    (self.key, self.isModification, self.change) = (key, isModification, change)
  }

  /// A change of an existing item. Does nothing if there is none.
  convenience init(of key: CacheKey, _ change: @escaping @Sendable (inout Item) throws -> Void) {
    self.init(key, isModification: false) { item in
      guard var present = item.take() else { return }
      try change(&present)
      item = present
    }
  }

  /// An insertion, change or removal.
  convenience init(modifying key: CacheKey, _ change: @escaping @Sendable (inout Item?) throws -> Void) {
    self.init(key, isModification: true, change)
  }
}

/// Undo or redo.
final class StoreReversal: Sendable {
  let direction: UndoHistory.Direction
  /// Whether there was something to undo or redo.
  let isDone = MutexProtected(false)

  init(_ direction: UndoHistory.Direction) { self.direction = direction }
}

/// A step with the keys of its items. The keys of inserted items are distinct.
enum KeyedStep<Item: StorableItem>: Sendable {
  case insert([(key: CacheKey, item: Item)])
  case remove([CacheKey])
  case removeAll
  /// Puts entries that cannot be decoded in the positions of the items or entries with the same keys, or appends them.
  case unreadable([UnreadableEntry])

  /// The items that the step inserts.
  var insertions: [(key: CacheKey, item: Item)] {
    if case .insert(let items) = self { items } else { [] }
  }

  /// The keys of the items that the step names.
  var keys: [CacheKey] {
    switch self {
    case .insert(let items): items.map(\.key)
    case .remove(let keys): keys
    case .removeAll: []
    case .unreadable(let entries): entries.map(\.key)
    }
  }

  /// The number of items that the step names; nil if it affects all.
  var count: Int? {
    switch self {
    case .insert(let items): items.count
    case .remove(let keys): keys.count
    case .removeAll: nil
    case .unreadable(let entries): entries.count
    }
  }

  /// - Throws: `StorageError` with code `unsupported` if two identifiers have the same hash.
  init(_ step: StoreStep<Item>, identifier: (Item) -> String) throws {
    switch step {
    case .removeAll:
      self = .removeAll
    case .update(let update):
      // A placeholder: the actual step is determined when the entry has been read.
      self = .remove([update.key])
    case .rewrite, .revert:
      // A placeholder: the effect is determined when the change is committed.
      self = .remove([])
    case .remove(let items):
      self = .remove(items.map { CacheKey(identifier: identifier($0)) })
    case .insert(let items):
      var keyed: [(key: CacheKey, item: Item)] = []
      keyed.reserveCapacity(items.count)
      var positions: [CacheKey: Int] = [:]
      if items.count > 1 { positions.reserveCapacity(items.count) }
      for item in items {
        let key = CacheKey(identifier: identifier(item))
        if items.count > 1, let position = positions.updateValue(keyed.count, forKey: key) {
          // The later item replaces the earlier one in place (rule S4).
          try key.checkIdentifier(keyed[position].key.rawValue)
          keyed[position].item = item
          positions[key] = position
        } else {
          keyed.append((key, item))
        }
      }
      self = .insert(keyed)
    }
  }
}
