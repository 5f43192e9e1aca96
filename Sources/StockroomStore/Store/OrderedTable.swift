import StockroomCore

/// Elements in the order of their sequence numbers, and an index of their keys.
///
/// A removed element keeps its slot until ``closeGaps()``, so that several removals move the other elements once.
struct OrderedTable<Element: Sendable>: Sendable {
  /// In ascending order of their sequence numbers. The elements at the positions in `vacated` have been removed.
  private(set) var elements: [Element] = []
  /// The sequence number of each element, ascending.
  private(set) var sequences: [Int] = []
  private var sequenceOfKey: [CacheKey: Int] = [:]
  /// The positions of elements that have been removed, unordered.
  private var vacated: [Int] = []

  /// O(1).
  var count: Int { sequenceOfKey.count }

  /// Whether there is an element with this key. O(1).
  func contains(_ key: CacheKey) -> Bool { sequenceOfKey[key] != nil }

  /// The same elements without their keys and sequence numbers, to be retained after the table has been replaced. Since the
  /// keys and numbers are not shared with this copy, the next change of the table does not copy them.
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
  /// Replaces the element with this key and returns the previous one, or nil if there is none. O(log N).
  mutating func replace(_ key: CacheKey, with element: Element) -> Element? {
    guard let sequence = sequenceOfKey[key], let position = position(of: sequence) else { return nil }
    let previous = elements[position]
    elements[position] = element
    return previous
  }

  /// Appends an element with a new key. Amortized O(1).
  mutating func append(_ element: Element, key: CacheKey, sequence: Int) {
    elements.append(element)
    sequences.append(sequence)
    sequenceOfKey[key] = sequence
  }

  /// Appends elements with ascending sequence numbers. An element with an existing key replaces the element with that key.
  /// Amortized O(1) for each.
  ///
  /// Faster than appending them one by one, since unspecialized generic code is slow for single elements.
  mutating func append(_ added: [Element], keys: [CacheKey], sequences numbers: [Int]) {
    let start = elements.count
    elements += added
    sequences += numbers
    for (offset, key) in keys.enumerated() {
      let earlier = sequenceOfKey.updateValue(numbers[offset], forKey: key)
      guard let earlier, let position = position(of: earlier) else { continue }
      sequenceOfKey[key] = earlier
      elements[position] = added[offset]
      vacated.append(start + offset)
    }
  }

  /// Inserts elements with new keys in the order of their sequence numbers. O(N).
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

  /// Removes the element with this key, if there is one. O(log N); the following ``closeGaps()`` costs O(N).
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

  /// Removes the vacated slots. O(N), or O(1) if there are none.
  mutating func closeGaps() {
    if vacated.isEmpty { return }
    let gaps = vacated.sorted()
    vacated = []
    elements.remove(at: gaps)
    sequences.remove(at: gaps)
  }

  /// Up to this number, elements are inserted one after another; more are merged into a new array.
  static var fewInsertions: Int { 4 }
}

// MARK: - Positions

extension OrderedTable {
  private func position(of sequence: Int) -> Int? {
    let position = firstPosition(from: sequence)
    return position < sequences.count && sequences[position] == sequence ? position : nil
  }

  /// The position of the first element with this sequence number or a later one. Binary search; O(1) as long as nothing
  /// has been removed.
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
  /// Whether `added` elements can be appended, and others replaced, without copying the arrays: their capacity suffices,
  /// and they are not shared.
  mutating func canChangeInPlace(adding added: Int) -> Bool {
    let isUnique = elements.isUniquelyReferenced()
    return isUnique && elements.capacity - elements.count >= added
      && sequences.capacity - sequences.count >= added
      && sequenceOfKey.capacity - sequenceOfKey.count >= added
  }

  /// The number of bytes that move when an element with this sequence number is removed or inserted.
  func bytesMoved(at sequence: Int) -> Int {
    let bytesPerElement = MemoryLayout<Element>.stride + MemoryLayout<Int>.stride
    return (sequences.count - firstPosition(from: sequence)) * bytesPerElement
  }

  /// The number of bytes that move when the elements with these keys are removed: all elements from the first of them on.
  func bytesMoved(byRemoving keys: some Sequence<CacheKey>) -> Int {
    keys.compactMap { sequenceOfKey[$0] }.min().map(bytesMoved) ?? 0
  }

  /// The sequence number of the element with this key. O(1).
  func sequence(of key: CacheKey) -> Int? { sequenceOfKey[key] }

  /// Whether there is an element with this sequence number. O(log N).
  func hasElement(at sequence: Int) -> Bool { position(of: sequence) != nil }

  /// The element with this key. O(log N).
  func element(of key: CacheKey) -> Element? {
    sequenceOfKey[key].flatMap(position).map { elements[$0] }
  }

  /// The elements with this sequence number or a later one. O(log N).
  func elements(from sequence: Int) -> ArraySlice<Element> { elements[firstPosition(from: sequence)...] }
}

extension Array {
  /// Whether the array's storage is not shared, so that the next change does not copy it.
  ///
  /// Only performance depends on the result: a change copies a shared array in any case.
  fileprivate mutating func isUniquelyReferenced() -> Bool {
    // In an unoptimized build, a direct call with an `AnyObject` would test a copy of the reference, which is never unique.
    let isUnique: (inout AnyObject) -> Bool = isKnownUniquelyReferenced
    // An array consists of one reference. The standard library has this test only for references.
    return withUnsafeMutablePointer(to: &self) { array in
      array.withMemoryRebound(to: AnyObject.self, capacity: 1) { isUnique(&$0.pointee) }
    }
  }

  /// Removes the elements at these ascending positions, and moves each range between them once.
  fileprivate mutating func remove(at gaps: [Int]) {
    guard let first = gaps.first else { return }
    withUnsafeMutableBufferPointer { elements in
      func range(_ bounds: Range<Int>) -> UnsafeMutableBufferPointer<Element> {
        UnsafeMutableBufferPointer(rebasing: elements[bounds])
      }
      // The removed elements go behind the others, so that every slot is initialized in the end.
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
