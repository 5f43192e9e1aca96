import StockroomCore

/// The entries that the engine holds under keys that others have changed.
struct EngineState<Item: StorableItem>: Sendable {
  struct Entry: Sendable {
    /// Its raw value is the identifier of the item, if the entry can be decoded.
    let key: CacheKey
    let sequence: Int
    let content: Result<Item, StorageError>
    let stamp: EntryStamp
    let digest: ValueDigest
    /// Whether the store has written this value itself and has already sent the event.
    var isReported = false
  }

  /// The entries that others have changed.
  var changed: [Entry] = []
  /// The keys that have become absent.
  var absent: [CacheKey] = []
  /// The engine's sequence numbers of other items, which have provisional numbers in the table.
  var sequences: [(key: CacheKey, sequence: Int)] = []
  /// Whether the engine provides sequence numbers. If not, the numbers in this value have no meaning.
  var hasSequences = true

  /// The number of items that applying the state may change.
  var count: Int { changed.count + absent.count + sequences.count }
}

extension ItemTable {
  /// The state without the entries that have not changed since they were loaded.
  func withoutLoaded(_ state: EngineState<Item>) -> EngineState<Item> {
    if recent.isEmpty { return state }
    var state = state
    state.changed.removeAll { recent[$0.key] == $0.stamp }
    return state
  }

  /// The data that must be read before a state can be applied.
  enum Need {
    case nothing
    /// The sequence numbers of these items too, since others have inserted items next to them.
    case sequences(of: ArraySlice<Item>)
    /// All entries: the engine does not provide the order of its entries, or not of all of them.
    case everything
  }

  /// The data that must be read before a state can be applied. O(1) for each entry.
  func need(for state: EngineState<Item>) -> Need {
    if state.changed.isEmpty, state.sequences.isEmpty { return .nothing }
    guard hasEngineOrder, state.hasSequences else { return .everything }
    // An entry that becomes readable is inserted among the items, so it counts as moved too.
    let isMoved = state.changed.contains { entry in
      entry.sequence != (entry.isReadable ? table.sequence(of: entry.key) : self.sequence(of: entry.key))
    }
    if !isMoved, state.sequences.isEmpty { return .nothing }
    if sharesPlaces(state) { return .everything }
    // Unreadable entries with provisional numbers: others may have inserted entries with these sequence numbers. This is
    // rare, since only undo appends unreadable entries.
    if !unreadableTable.elements(from: provisionalStart).isEmpty { return .everything }
    if !state.sequences.isEmpty { return .nothing }
    let provisional = table.elements(from: provisionalStart)
    return provisional.isEmpty ? .nothing : .sequences(of: provisional)
  }

  /// Whether two entries would have the same sequence number, as copied files with the same time may have.
  private func sharesPlaces(_ state: EngineState<Item>) -> Bool {
    let left = Set((state.absent + state.changed.map(\.key)).compactMap { sequence(of: $0) })
    var taken: Set<Int> = []
    return (state.changed.map(\.sequence) + state.sequences.map(\.sequence)).contains { place in
      if !taken.insert(place).inserted { return true }
      // Items with provisional numbers get other numbers, and the changed entries leave their previous ones.
      if place >= provisionalStart || left.contains(place) { return false }
      return table.hasElement(at: place) || unreadableTable.hasElement(at: place)
    }
  }

  /// Whether a state can be applied on the main actor, in a few milliseconds.
  ///
  /// False if it changes many items, or if the table is large and most of it would be copied, moved, or reallocated.
  mutating func isCheap(_ state: EngineState<Item>) -> Bool {
    if isSmall { return true }
    guard state.absent.isEmpty, state.sequences.isEmpty, state.changed.count <= 1_000 else { return false }
    // An unreadable entry is always removed and inserted again, even at the same position.
    var moved: [EngineState<Item>.Entry] = []
    for entry in state.changed where !entry.isReadable || table.sequence(of: entry.key) != entry.sequence {
      moved.append(entry)
    }
    let changesUnreadable = moved.contains { !$0.isReadable || unreadableTable.contains($0.key) }
    guard moved.count <= 1, table.canChangeInPlace(adding: moved.count),
      canNoteHashes(state.changed.count),
      !changesUnreadable || unreadableTable.count <= Self.cheapCount
        || unreadableTable.canChangeInPlace(adding: moved.count)
    else { return false }
    var bytes = 0
    for entry in moved {
      bytes += table.bytesMoved(byRemoving: [entry.key]) + unreadableTable.bytesMoved(byRemoving: [entry.key])
      bytes +=
        entry.isReadable
        ? table.bytesMoved(at: entry.sequence) : unreadableTable.bytesMoved(at: entry.sequence)
    }
    return bytes <= Self.cheapMove
  }

  /// Makes the items equal to the entries of the engine. Call it once the state is complete: see ``need(for:)``.
  ///
  /// O(log N) for each entry that has kept its position, plus O(N) once if any entry moves.
  mutating func apply(_ state: EngineState<Item>, forQueries: Bool = false) -> Change {
    var change = Change(forQueries: forQueries)
    var (inserted, removed): ([Item], [Item]) = ([], [])
    var items: [(key: CacheKey, sequence: Int, element: Item)] = []
    var unreadable: [(key: CacheKey, sequence: Int, element: UnreadableEntry)] = []
    var isMoved = false
    if !recent.isEmpty { for key in state.absent + state.changed.map(\.key) { recent[key] = nil } }
    for key in state.absent { if let item = remove(key, &change) { removed.append(item) } }
    for (key, sequence) in state.sequences {
      guard let (previous, item) = table.remove(key) else { continue }
      change.note(previous, item, nil)
      items.append((key, sequence, item))
    }
    for entry in state.changed {
      let place = entry.sequence
      if place != sequence(of: entry.key) { isMoved = true }
      switch entry.content {
      case .success(let item):
        if !entry.isReported { inserted.append(item) }
        if table.sequence(of: entry.key) == place, let previous = table.replace(entry.key, with: item) {
          change.replaced.append(previous)
          change.note(place, previous, item)
        } else {
          if let previous = remove(entry.key, &change) { change.replaced.append(previous) }
          items.append((entry.key, place, item))
        }
        if entry.key.isHash {
          hashedIdentifiers[entry.key] = entry.key.rawValue
        } else if !hashedIdentifiers.isEmpty {
          hashedIdentifiers[entry.key] = nil
        }
      case .failure(let error):
        if let item = remove(entry.key, &change) { removed.append(item) }
        unreadable.append((entry.key, place, UnreadableEntry(key: entry.key, error: error)))
      }
    }
    // After the removals, since they may free positions that are needed here.
    for (_, sequence, item) in items { change.note(sequence, nil, item) }
    if items.isEmpty { table.closeGaps() } else { table.merge(items) }
    if unreadable.isEmpty { unreadableTable.closeGaps() } else { unreadableTable.merge(unreadable) }
    let last = max(items.map(\.sequence).max() ?? -1, unreadable.map(\.sequence).max() ?? -1)
    nextSequence = max(nextSequence, last + 1)
    // All items with provisional numbers have been moved to their positions.
    if !items.isEmpty || isMoved { provisionalStart = nextSequence }
    if !removed.isEmpty { change.events.append(StoreEvent(.remove, removed)) }
    if !inserted.isEmpty { change.events.append(StoreEvent(.insert, inserted)) }
    return change
  }

  /// The sequence number of an item or an unreadable entry.
  func sequence(of key: CacheKey) -> Int? {
    table.sequence(of: key) ?? unreadableTable.sequence(of: key)
  }
}
