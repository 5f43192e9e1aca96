import StockroomCore

/// Elements in the order of sequence numbers, each found by its key.
///
/// What is removed keeps its slot until ``closeGaps()``, so that many removals in a row move the others once.
struct OrderedTable<Element: Sendable>: Sendable {
  /// In ascending order of their sequence numbers. Those at `vacated` have been removed.
  private(set) var elements: [Element] = []
  /// The sequence number of each element. Ascending, so that an element is found by it.
  private var sequences: [Int] = []
  private var sequenceOfKey: [CacheKey: Int] = [:]
  /// Positions of elements that have been removed, in no order.
  private var vacated: [Int] = []

  /// O(1).
  var count: Int { sequenceOfKey.count }

  /// Whether there is an element of the key. O(1).
  func contains(_ key: CacheKey) -> Bool { sequenceOfKey[key] != nil }

  /// The same elements without their keys: something to show while the table is changed on another thread, whose keys
  /// are then not shared, and so not copied.
  var withoutKeys: OrderedTable {
    var copy = OrderedTable()
    copy.elements = elements
    return copy
  }

  mutating func reserveCapacity(_ capacity: Int) {
    elements.reserveCapacity(capacity)
    sequences.reserveCapacity(capacity)
    sequenceOfKey.reserveCapacity(capacity)
  }
}

// MARK: - Changing

extension OrderedTable {
  /// Puts the element in the place of the one with its key. The element that was there, or nil if there is none.
  /// O(log N).
  mutating func replace(_ key: CacheKey, with element: Element) -> Element? {
    guard let sequence = sequenceOfKey[key], let position = position(of: sequence) else { return nil }
    let former = elements[position]
    elements[position] = element
    return former
  }

  /// Puts an element behind all others. Its key has none yet. O(1), amortised.
  mutating func append(_ element: Element, key: CacheKey, sequence: Int) {
    elements.append(element)
    sequences.append(sequence)
    sequenceOfKey[key] = sequence
  }

  /// Puts elements, which have the sequence numbers from `sequence` on, behind all others. A key that comes again
  /// replaces the element that has it. O(1) for each, amortised.
  ///
  /// What single insertions do one by one is done here for all of them together, since a generic type knows little
  /// about an element by itself.
  mutating func append(_ added: [Element], keys: [CacheKey], from sequence: Int) {
    let start = elements.count
    elements += added
    sequences += sequence..<sequence + keys.count
    for (offset, key) in keys.enumerated() {
      let earlier = sequenceOfKey.updateValue(sequence + offset, forKey: key)
      guard let earlier, let position = position(of: earlier) else { continue }
      sequenceOfKey[key] = earlier
      elements[position] = added[offset]
      vacated.append(start + offset)
    }
  }

  /// Puts elements, whose keys have none yet, where their sequence numbers belong. O(N).
  mutating func merge(_ added: [(key: CacheKey, sequence: Int, element: Element)]) {
    closeGaps()
    for (key, sequence, _) in added { sequenceOfKey[key] = sequence }
    if added.count <= Self.fewInsertions {
      for (_, sequence, element) in added {
        let position = firstPosition(from: sequence)
        elements.insert(element, at: position)
        sequences.insert(sequence, at: position)
      }
      return
    }
    let sorted = added.sorted { $0.sequence < $1.sequence }
    var merged: [Element] = []
    var mergedSequences: [Int] = []
    merged.reserveCapacity(elements.count + sorted.count)
    mergedSequences.reserveCapacity(elements.count + sorted.count)
    var next = 0
    for (_, sequence, element) in sorted {
      let end = firstPosition(from: sequence)
      merged += elements[next..<end]
      mergedSequences += sequences[next..<end]
      merged.append(element)
      mergedSequences.append(sequence)
      next = end
    }
    elements = merged + elements[next...]
    sequences = mergedSequences + sequences[next...]
  }

  /// Takes the element of the key out, if there is one. O(log N), and O(N) when the gaps are closed.
  mutating func remove(_ key: CacheKey) -> (sequence: Int, element: Element)? {
    guard let sequence = sequenceOfKey.removeValue(forKey: key), let position = position(of: sequence) else {
      return nil
    }
    let element = elements[position]
    if position == elements.count - 1 {
      elements.removeLast()
      sequences.removeLast()
    } else {
      vacated.append(position)
    }
    return (sequence, element)
  }

  /// Moves what is behind the gaps up. O(N), or O(1) without a gap.
  mutating func closeGaps() {
    if vacated.isEmpty { return }
    let gaps = vacated.sorted()
    vacated = []
    elements.remove(at: gaps)
    sequences.remove(at: gaps)
  }

  /// So many elements are put in between one after the other; where there are more, a new array is made once.
  static var fewInsertions: Int { 4 }
}

// MARK: - Positions

extension OrderedTable {
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
    return sequences.partitioningIndex { $0 >= sequence }
  }
}

// MARK: - Costs

extension OrderedTable {
  /// Whether so many elements can be added, and any replaced, without copying all of them: there is room, and nobody
  /// else holds the array.
  mutating func canChangeInPlace(adding added: Int) -> Bool {
    let isUnique = elements.isUniquelyReferenced()
    return isUnique && elements.capacity - elements.count >= added
      && sequences.capacity - sequences.count >= added
      && sequenceOfKey.capacity - sequenceOfKey.count >= added
  }

  /// How many bytes move when an element with this sequence number is taken out or put in.
  func bytesMoved(at sequence: Int) -> Int {
    let bytesPerElement = MemoryLayout<Element>.stride + MemoryLayout<Int>.stride
    return (sequences.count - firstPosition(from: sequence)) * bytesPerElement
  }

  /// How many bytes move when the elements of the keys are taken out: all that are behind the first of them.
  func bytesMoved(byRemoving keys: some Sequence<CacheKey>) -> Int {
    keys.compactMap { sequenceOfKey[$0] }.min().map(bytesMoved) ?? 0
  }

  /// The sequence number of the element of the key. O(1).
  func sequence(of key: CacheKey) -> Int? { sequenceOfKey[key] }
}

extension Array {
  /// Whether nobody else holds the array, so that the next change does not copy it.
  ///
  /// Only costs depend on the answer: a change copies a shared array whatever is said here.
  fileprivate mutating func isUniquelyReferenced() -> Bool {
    // A call with an `AnyObject` would look at a copy of the reference, which an unoptimised build really makes.
    let isUnique: (inout AnyObject) -> Bool = isKnownUniquelyReferenced
    // An array is one reference to its elements; the standard library tells only of references whether they are unique.
    return withUnsafeMutablePointer(to: &self) { array in
      array.withMemoryRebound(to: AnyObject.self, capacity: 1) { isUnique(&$0.pointee) }
    }
  }

  /// Removes the elements at some positions, in ascending order, and moves the ranges between them once each.
  fileprivate mutating func remove(at gaps: [Int]) {
    guard let first = gaps.first else { return }
    withUnsafeMutableBufferPointer { elements in
      func range(_ bounds: Range<Int>) -> UnsafeMutableBufferPointer<Element> {
        UnsafeMutableBufferPointer(rebasing: elements[bounds])
      }
      // Moved behind the others by way of a place of their own, so that each place holds an element in the end.
      let removed = UnsafeMutableBufferPointer<Element>.allocate(capacity: gaps.count)
      defer { removed.deallocate() }
      for (index, gap) in gaps.enumerated() {
        removed.initializeElement(at: index, to: elements.moveElement(from: gap))
      }
      var end = first
      for (index, gap) in gaps.enumerated() {
        let next = index + 1 < gaps.count ? gaps[index + 1] : elements.count
        end = range(end..<elements.count).moveInitialize(fromContentsOf: range(gap + 1..<next)) + end
      }
      _ = range(end..<elements.count).moveInitialize(fromContentsOf: removed)
    }
    removeLast(gaps.count)
  }
}
