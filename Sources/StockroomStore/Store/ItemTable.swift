import StockroomCore

/// The items of a store in the order of insertion, and in the same order the entries that are no items.
///
/// Inserting and replacing cost the same however many items there are (rule S7).
struct ItemTable<Item: StorableItem>: Sendable {
  private var table = OrderedTable<Item>()
  /// An item that is inserted under the key of one of these has its place.
  private var unreadableTable = OrderedTable<UnreadableEntry>()
  private var nextSequence = 0
  /// The identifiers of items whose keys are hashes.
  private(set) var hashedIdentifiers: [CacheKey: String] = [:]

  init() {}

  /// The items in order. O(1).
  var items: [Item] { table.elements }

  /// The entries that are no items, in order. O(1).
  var unreadable: [UnreadableEntry] { unreadableTable.elements }

  /// What there is to show, without the keys: see ``OrderedTable/withoutKeys``.
  var withoutKeys: ItemTable {
    var copy = ItemTable()
    copy.table = table.withoutKeys
    copy.unreadableTable = unreadableTable.withoutKeys
    return copy
  }
}

// MARK: - Loading

extension ItemTable {
  mutating func reserveCapacity(_ capacity: Int) { table.reserveCapacity(capacity) }

  /// Puts items behind all others. A key that comes again replaces the item that has it. O(1) for each.
  mutating func append(_ items: [Item], keys: [CacheKey]) {
    table.append(items, keys: keys, from: nextSequence)
    for key in keys where key.isHash { hashedIdentifiers[key] = key.rawValue }
    nextSequence += keys.count
  }

  /// Puts an entry that is no item behind all others. O(1).
  mutating func append(_ entry: UnreadableEntry) {
    if unreadableTable.replace(entry.key, with: entry) == nil {
      unreadableTable.append(entry, key: entry.key, sequence: nextSequence)
      nextSequence += 1
    }
  }

  /// What follows the last ``append(_:keys:)``. O(N) if a key came twice.
  mutating func endAppending() { table.closeGaps() }
}

// MARK: - Changing

extension ItemTable {
  /// What steps have done.
  struct Change: Sendable {
    /// What happened to which items.
    var events: [StoreEvent<Item>] = []
    /// The items whose place others have taken. They are handed back so that whoever changes a table lets go of them
    /// afterwards: the end of an item may look at the store.
    var replaced: [Item] = []
  }

  /// Does the steps in order. O(log N) for each item that is inserted or replaced; O(N) once if items are removed or
  /// take the places of entries that were no items.
  mutating func apply(_ steps: [KeyedStep<Item>]) -> Change {
    var change = Change()
    for step in steps {
      switch step {
      case .insert(let entries):
        if entries.isEmpty { continue }
        insert(entries, &change.replaced)
        change.events.append(StoreEvent(.insert, entries.map(\.item)))
      case .remove(let keys):
        let removed = keys.compactMap { remove($0) }
        if !removed.isEmpty { change.events.append(StoreEvent(.remove, removed)) }
      case .removeAll:
        table.closeGaps()
        let removed = items
        self = ItemTable()
        if !removed.isEmpty { change.events.append(StoreEvent(.remove, removed)) }
      }
    }
    table.closeGaps()
    unreadableTable.closeGaps()
    return change
  }

  /// Puts each item in the place of the one with its key, or of the entry with its key that is no item, or behind all
  /// others. No key comes twice.
  private mutating func insert(_ entries: [(key: CacheKey, item: Item)], _ replaced: inout [Item]) {
    var inBetween: [(key: CacheKey, sequence: Int, element: Item)] = []
    for (key, item) in entries {
      if let former = table.replace(key, with: item) {
        replaced.append(former)
        continue
      }
      if key.isHash { hashedIdentifiers[key] = key.rawValue }
      if let (sequence, _) = unreadableTable.remove(key) {
        inBetween.append((key, sequence, item))
      } else {
        table.append(item, key: key, sequence: nextSequence)
        nextSequence += 1
      }
    }
    if !inBetween.isEmpty { table.merge(inBetween) }
  }

  /// Takes the item out, or the entry that is no item.
  private mutating func remove(_ key: CacheKey) -> Item? {
    guard let (_, item) = table.remove(key) else {
      _ = unreadableTable.remove(key)
      return nil
    }
    if key.isHash { hashedIdentifiers[key] = nil }
    return item
  }
}

// MARK: - What a change comes to

extension ItemTable {
  /// Whether the steps change the items. O(1) for each key.
  func changesItems(_ steps: [KeyedStep<Item>]) -> Bool {
    steps.contains { step in
      switch step {
      case .insert(let entries): !entries.isEmpty
      case .remove(let keys): keys.contains(where: table.contains)
      case .removeAll: table.count > 0
      }
    }
  }

  /// Whether the steps change the list of entries that are no items. O(1) for each key.
  func changesUnreadable(_ steps: [KeyedStep<Item>]) -> Bool {
    if unreadableTable.count == 0 { return false }
    return steps.contains { step in
      switch step {
      case .insert(let entries): entries.contains { unreadableTable.contains($0.key) }
      case .remove(let keys): keys.contains(where: unreadableTable.contains)
      case .removeAll: true
      }
    }
  }

  /// Whether it takes no time to copy all of it, or to let go of it.
  var isSmall: Bool { table.elements.count + unreadableTable.elements.count <= Self.littleCount }

  /// Of a table with no more than this, all may be copied, and so many may be changed, where nothing may stand still.
  /// About a millisecond.
  private static var littleCount: Int { 4_096 }
  /// So many bytes may be moved there. Memory takes some milliseconds for them.
  private static var littleMove: Int { 64 << 20 }

  /// Whether ``apply(_:)`` is so little work that the main actor can do it.
  ///
  /// What is not: changes of many items; and, among many, all that would copy, make room for or move most of them.
  mutating func isLittleWork(_ steps: [KeyedStep<Item>]) -> Bool {
    let changed = steps.reduce(0) { $0 + ($1.count ?? table.count + unreadableTable.count) }
    guard changed <= Self.littleCount else { return false }
    if isSmall { return true }

    guard table.canChangeInPlace(adding: changed),
      hashedIdentifiers.count <= Self.littleCount
        || hashedIdentifiers.capacity - hashedIdentifiers.count >= changed,
      !changesUnreadable(steps) || unreadableTable.count <= Self.littleCount
        || unreadableTable.canChangeInPlace(adding: 0)
    else { return false }
    var moved = 0
    for step in steps {
      switch step {
      case .insert(let entries):
        if unreadableTable.count == 0 { continue }
        let taken = entries.compactMap { unreadableTable.sequence(of: $0.key) }
        if taken.count > OrderedTable<Item>.fewInsertions { return false }
        moved += taken.reduce(0) { $0 + table.bytesMoved(at: $1) }
        moved += unreadableTable.bytesMoved(byRemoving: entries.lazy.map(\.key))
      case .remove(let keys):
        moved += table.bytesMoved(byRemoving: keys) + unreadableTable.bytesMoved(byRemoving: keys)
      case .removeAll: break
      }
    }
    return moved <= Self.littleMove
  }
}
