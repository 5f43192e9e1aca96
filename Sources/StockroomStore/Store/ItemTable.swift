import StockroomCore

/// The items of a store in the order of insertion, and the unreadable entries, which have positions in the same order.
///
/// The cost of inserting and replacing an item does not depend on the number of items (rule S7).
struct ItemTable<Item: StorableItem>: Sendable {
  var table = OrderedTable<Item>()
  /// The unreadable entries. An item that is inserted under the key of an unreadable entry takes its position.
  var unreadableTable = OrderedTable<UnreadableEntry>()
  /// Sequence numbers below this one are those of the engine, if it provides them. From this one on they are provisional:
  /// this store has appended these items, and the engine may have inserted items of others between them.
  var provisionalStart = 0
  var nextSequence = 0
  /// Whether the sequence numbers are those of the engine.
  var hasEngineOrder = true
  /// The identifiers of items whose keys are hashes.
  var hashedIdentifiers: [CacheKey: String] = [:]
  /// The stamps of loaded entries that others may have written when the load began, until these entries change. The feed may report
  /// these writes later, although the table already contains them.
  var recent: [CacheKey: EntryStamp] = [:]

  init() {}

  /// The items in order. O(1).
  var items: [Item] { table.elements }

  /// The unreadable entries in order. O(1).
  var unreadable: [UnreadableEntry] { unreadableTable.elements }

  /// The items and the unreadable entries only: see ``OrderedTable/withoutKeys``.
  var withoutKeys: ItemTable {
    var copy = ItemTable()
    copy.table = table.withoutKeys
    copy.unreadableTable = unreadableTable.withoutKeys
    return copy
  }
}

// MARK: - Looking up

extension ItemTable {
  /// The item with the identifier that is the raw value of the key. O(log N).
  func item(identifiedBy key: CacheKey) -> Item? { isOwner(of: key) ? table.element(of: key) : nil }

  /// Whether there is an item with the identifier that is the raw value of the key. O(1).
  func containsItem(identifiedBy key: CacheKey) -> Bool { isOwner(of: key) && table.contains(key) }

  /// Whether an item under the key has the raw value of the key as its identifier. It does not if its identifier is another
  /// one with the same hash, or if one of the two identifiers is the text of the other's hash.
  private func isOwner(of key: CacheKey) -> Bool {
    guard let identifier = hashedIdentifiers[key] else { return !key.isHash }
    return identifier.utf8.elementsEqual(key.rawValue.utf8)
  }
}

// MARK: - Loading

extension ItemTable {
  mutating func reserveCapacity(_ capacity: Int) { table.reserveCapacity(capacity) }

  /// Appends items with ascending sequence numbers. An item with an existing key replaces the item with that key. O(1) for each.
  mutating func append(_ items: [Item], keys: [CacheKey], sequences: [Int]) {
    table.append(items, keys: keys, sequences: sequences)
    for key in keys where key.isHash { hashedIdentifiers[key] = key.rawValue }
    nextSequence = max(nextSequence, (sequences.last ?? -1) + 1)
  }

  /// Appends an unreadable entry. O(1).
  mutating func append(_ entry: UnreadableEntry, sequence: Int) {
    if unreadableTable.replace(entry.key, with: entry) == nil {
      unreadableTable.append(entry, key: entry.key, sequence: sequence)
      nextSequence = max(nextSequence, sequence + 1)
    }
  }

  /// Call it after the last ``append(_:keys:sequences:)``. O(N) if a key was appended twice.
  mutating func endAppending() {
    table.closeGaps()
    provisionalStart = nextSequence
  }
}

// MARK: - Changing

extension ItemTable {
  /// The effects of ``apply(_:forQueries:)``.
  struct Change: Sendable {
    /// The events to report.
    var events: [StoreEvent<Item>] = []
    /// The items that have been replaced. They are returned so that the caller releases them after the change: the
    /// `deinit` of an item may use the store.
    var replaced: [Item] = []
    /// The changes for queries; nil if there are no queries.
    var delta: ItemDelta<Item>?

    init(forQueries: Bool = false) { delta = forQueries ? ItemDelta() : nil }

    /// Records for queries that the item with a sequence number has changed.
    mutating func note(_ sequence: Int, _ previous: Item?, _ item: Item?) {
      delta?.changes.append(ItemDelta.Change(sequence: sequence, previous: previous, item: item))
    }
  }

  /// Applies the steps in order. O(log N) for each item that is inserted or replaced; O(N) once if items are removed or
  /// replace unreadable entries.
  ///
  /// - Parameter forQueries: Whether there are queries that need the changes.
  mutating func apply(_ steps: [KeyedStep<Item>], forQueries: Bool = false) -> Change {
    var change = Change(forQueries: forQueries)
    if !recent.isEmpty { for step in steps { for key in step.keys { recent[key] = nil } } }
    for step in steps {
      switch step {
      case .insert(let entries):
        if entries.isEmpty { continue }
        insert(entries, &change)
        change.events.append(StoreEvent(.insert, entries.map(\.item)))
      case .remove(let keys):
        let removed = keys.compactMap { remove($0, &change) }
        if !removed.isEmpty { change.events.append(StoreEvent(.remove, removed)) }
      case .removeAll:
        table.closeGaps()
        let removed = items
        let hasEngineOrder = hasEngineOrder
        self = ItemTable()
        self.hasEngineOrder = hasEngineOrder
        if forQueries { change.delta = ItemDelta(removesAll: true) }
        if !removed.isEmpty { change.events.append(StoreEvent(.remove, removed)) }
      case .unreadable(let entries):
        let removed = insert(entries, &change)
        if !removed.isEmpty { change.events.append(StoreEvent(.remove, removed)) }
      }
    }
    table.closeGaps()
    unreadableTable.closeGaps()
    return change
  }

  /// Puts each item in the position of the item or unreadable entry with its key, or appends it. The keys are
  /// distinct.
  private mutating func insert(_ entries: [(key: CacheKey, item: Item)], _ change: inout Change) {
    var replacements: [(key: CacheKey, sequence: Int, element: Item)] = []
    for (key, item) in entries {
      if let previous = table.replace(key, with: item) {
        change.replaced.append(previous)
        if change.delta != nil, let sequence = table.sequence(of: key) {
          change.note(sequence, previous, item)
        }
        continue
      }
      if key.isHash { hashedIdentifiers[key] = key.rawValue }
      if let (sequence, _) = unreadableTable.remove(key) {
        replacements.append((key, sequence, item))
        change.note(sequence, nil, item)
      } else {
        table.append(item, key: key, sequence: nextSequence)
        change.note(nextSequence, nil, item)
        nextSequence += 1
      }
    }
    if !replacements.isEmpty { table.merge(replacements) }
  }

  /// Puts each entry in the position of the item or unreadable entry with its key, or appends it. Returns the
  /// items.
  private mutating func insert(_ entries: [UnreadableEntry], _ change: inout Change) -> [Item] {
    var removed: [Item] = []
    var placed: [(key: CacheKey, sequence: Int, element: UnreadableEntry)] = []
    for entry in entries {
      let place = sequence(of: entry.key) ?? nextSequence
      nextSequence = max(nextSequence, place + 1)
      if let item = remove(entry.key, &change) { removed.append(item) }
      placed.append((entry.key, place, entry))
    }
    unreadableTable.merge(placed)
    return removed
  }

  /// Removes the item or the unreadable entry. Returns the item.
  mutating func remove(_ key: CacheKey, _ change: inout Change) -> Item? {
    guard let (sequence, item) = table.remove(key) else {
      _ = unreadableTable.remove(key)
      return nil
    }
    // Always: a removal by others is reported with the key only, from which `isHash` cannot be determined.
    if !hashedIdentifiers.isEmpty { hashedIdentifiers[key] = nil }
    change.note(sequence, item, nil)
    return item
  }
}

// MARK: - The cost of a change

extension ItemTable {
  /// Whether the steps change the items. O(1) for each key.
  func changesItems(_ steps: [KeyedStep<Item>]) -> Bool {
    steps.contains { step in
      switch step {
      case .insert(let entries): !entries.isEmpty
      case .remove(let keys): keys.contains(where: table.contains)
      case .removeAll: table.count > 0
      case .unreadable(let entries): entries.contains { table.contains($0.key) }
      }
    }
  }

  /// Whether the steps change the unreadable entries. O(1) for each key.
  func changesUnreadable(_ steps: [KeyedStep<Item>]) -> Bool {
    return steps.contains { step in
      switch step {
      case .insert(let entries):
        unreadableTable.count > 0 && entries.contains { unreadableTable.contains($0.key) }
      case .remove(let keys): unreadableTable.count > 0 && keys.contains(where: unreadableTable.contains)
      case .removeAll: unreadableTable.count > 0
      case .unreadable: true
      }
    }
  }

  /// Whether the table is so small that copying or releasing it takes less than a millisecond.
  var isSmall: Bool { table.elements.count + unreadableTable.elements.count <= Self.cheapCount }

  /// The number of items that can be copied or changed on the main actor, in about a millisecond.
  static var cheapCount: Int { 4_096 }
  /// The number of bytes that can be moved on the main actor, in a few milliseconds.
  static var cheapMove: Int { 64 << 20 }

  /// The number of items that the steps may change.
  func changedCount(_ steps: [KeyedStep<Item>]) -> Int {
    steps.reduce(0) { $0 + ($1.count ?? table.count + unreadableTable.count) }
  }

  /// Whether the identifiers of this many items can be added without rehashing many others.
  func canNoteHashes(_ added: Int) -> Bool {
    hashedIdentifiers.count <= Self.cheapCount
      || hashedIdentifiers.capacity - hashedIdentifiers.count >= added
  }

  /// Whether ``apply(_:forQueries:)`` is cheap enough for the main actor.
  ///
  /// False if the steps change many items, or if the table is large and most of it would be copied, moved, or reallocated.
  mutating func isCheap(_ steps: [KeyedStep<Item>]) -> Bool {
    let changed = changedCount(steps)
    guard changed <= Self.cheapCount else { return false }
    if isSmall || steps.isEmpty { return true }

    guard table.canChangeInPlace(adding: changed),
      canNoteHashes(changed),
      !changesUnreadable(steps) || unreadableTable.count <= Self.cheapCount
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
      case .unreadable: return false
      }
    }
    return moved <= Self.cheapMove
  }
}
