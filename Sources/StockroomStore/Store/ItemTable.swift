import StockroomCore

/// The items of a store in the order of insertion, each found by its key.
///
/// Inserting, replacing and removing cost the same however many items there are (rule S7). What is removed leaves
/// its place occupied until somebody looks at ``items``, so that many removals in a row move the others once.
struct ItemTable<Item: Sendable>: Sendable {
  /// In the order of insertion. Those at `vacated` have been removed.
  private var elements: [Item] = []
  /// For each element, how many had been inserted before it, ever. Ascending, so that an element is found by it.
  private var sequences: [Int] = []
  private var sequenceOfKey: [CacheKey: Int] = [:]
  /// Positions of elements that have been removed, in no order.
  private var vacated: [Int] = []
  private var nextSequence = 0
  /// The places that are kept for keys without items.
  private var reservedSequenceOfKey: [CacheKey: Int] = [:]
  /// The identifiers of items whose keys are hashes.
  private(set) var hashedIdentifiers: [CacheKey: String] = [:]

  init() {}

  /// O(1).
  var count: Int { sequenceOfKey.count }

  /// O(1).
  func contains(_ key: CacheKey) -> Bool { sequenceOfKey[key] != nil }

  /// The items in order, without a copy. O(1), or O(N) if something has been removed since the last time.
  var items: [Item] {
    mutating get {
      if !vacated.isEmpty { close(gaps: vacated.sorted()) }
      return elements
    }
  }

  mutating func reserveCapacity(_ capacity: Int) {
    elements.reserveCapacity(capacity)
    sequences.reserveCapacity(capacity)
    sequenceOfKey.reserveCapacity(capacity)
  }

  /// How many places are kept for keys without items.
  var reservedCount: Int { reservedSequenceOfKey.count }

  /// Whether the key has no item, but a place. O(1).
  func keepsPlace(for key: CacheKey) -> Bool { reservedSequenceOfKey[key] != nil }

  /// Puts each item in the place of the one with its key, or in the place that is kept for the key, or behind all
  /// others. No key comes twice. O(log N) for each; O(N) for all that come into places that are kept.
  mutating func insert(_ entries: [(key: CacheKey, item: Item)]) {
    var expected: [(sequence: Int, item: Item)] = []
    for (key, item) in entries {
      if let sequence = sequenceOfKey[key], let position = position(of: sequence) {
        elements[position] = item
        continue
      }
      if key.isHash { hashedIdentifiers[key] = key.rawValue }
      if let sequence = reservedSequenceOfKey.removeValue(forKey: key) {
        sequenceOfKey[key] = sequence
        expected.append((sequence, item))
      } else {
        sequenceOfKey[key] = nextSequence
        elements.append(item)
        sequences.append(nextSequence)
        nextSequence += 1
      }
    }
    if !expected.isEmpty { merge(expected.sorted { $0.sequence < $1.sequence }) }
  }

  /// Puts items behind all others. A key that comes again replaces the item that has it. O(1) for each.
  ///
  /// What ``insert(_:)`` does item by item is done here for all of them together, since a generic type knows little
  /// about an item by itself.
  mutating func append(_ items: [Item], keys: [CacheKey]) {
    let start = elements.count
    elements += items
    sequences += nextSequence..<nextSequence + keys.count
    for (offset, key) in keys.enumerated() {
      if key.isHash { hashedIdentifiers[key] = key.rawValue }
      let earlier = sequenceOfKey.updateValue(nextSequence + offset, forKey: key)
      guard let earlier, let position = position(of: earlier) else { continue }
      sequenceOfKey[key] = earlier
      elements[position] = items[offset]
      vacated.append(start + offset)
    }
    nextSequence += keys.count
  }

  /// Keeps the place behind all others for a key that has no item yet. O(1).
  mutating func reservePlace(for key: CacheKey) {
    reservedSequenceOfKey[key] = nextSequence
    nextSequence += 1
  }

  /// Takes the item out, if there is one. O(log N), amortised.
  mutating func remove(_ key: CacheKey) -> Item? {
    reservedSequenceOfKey[key] = nil
    guard let sequence = sequenceOfKey.removeValue(forKey: key), let position = position(of: sequence) else {
      return nil
    }
    if key.isHash { hashedIdentifiers[key] = nil }
    let item = elements[position]
    if position == elements.count - 1 {
      elements.removeLast()
      sequences.removeLast()
    } else {
      vacated.append(position)
      // As many gaps as items: closing them costs no more than making them did.
      if vacated.count > 32, vacated.count > count { close(gaps: vacated.sorted()) }
    }
    return item
  }

  private func position(of sequence: Int) -> Int? {
    let position = firstPosition(from: sequence)
    return position < sequences.count && sequences[position] == sequence ? position : nil
  }

  /// The position of the first element with this sequence number or a later one. Binary search, which is one step as
  /// long as nothing has been removed.
  private func firstPosition(from sequence: Int) -> Int {
    if let first = sequences.first, case let guess = sequence - first, sequences.indices.contains(guess),
      sequences[guess] == sequence
    {
      return guess
    }
    var low = 0
    var high = sequences.count
    while low < high {
      let middle = (low + high) / 2
      if sequences[middle] < sequence { low = middle + 1 } else { high = middle }
    }
    return low
  }

  /// Puts items into places that were kept for them. O(N).
  private mutating func merge(_ expected: [(sequence: Int, item: Item)]) {
    if !vacated.isEmpty { close(gaps: vacated.sorted()) }
    var merged: [Item] = []
    var mergedSequences: [Int] = []
    merged.reserveCapacity(elements.count + expected.count)
    mergedSequences.reserveCapacity(elements.count + expected.count)
    var next = 0
    for (sequence, item) in expected {
      let end = firstPosition(from: sequence)
      merged += elements[next..<end]
      mergedSequences += sequences[next..<end]
      merged.append(item)
      mergedSequences.append(sequence)
      next = end
    }
    elements = merged + elements[next...]
    sequences = mergedSequences + sequences[next...]
  }

  /// Moves what is behind the gaps up. O(N).
  private mutating func close(gaps: [Int]) {
    guard let first = gaps.first else { return }
    vacated = []
    if gaps.count == 1 {
      elements.remove(at: first)
      sequences.remove(at: first)
      return
    }
    var next = first
    for (index, gap) in gaps.enumerated() {
      let end = index + 1 < gaps.count ? gaps[index + 1] : elements.count
      for position in gap + 1..<end {
        elements.swapAt(next, position)
        sequences[next] = sequences[position]
        next += 1
      }
    }
    elements.removeSubrange(next...)
    sequences.removeSubrange(next...)
  }
}
