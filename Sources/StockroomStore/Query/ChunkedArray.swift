import StockroomCore

/// An array in chunks, so that inserting and removing move few elements, and changing a shared array copies only a part of it.
///
/// With N elements there are about N / 400 chunks. An insertion or a removal costs a binary search, the move of part of a
/// chunk, and a pass over the positions of the chunks; while a copy is retained, also a copy of one chunk and of the array
/// of chunks.
struct ChunkedArray<Element> {
  /// No chunk is empty.
  private var chunks: [[Element]] = []
  /// The position of the first element of each chunk.
  private var starts: [Int] = []
  /// O(1).
  private(set) var count = 0

  /// A chunk with more elements is divided.
  private static var maximum: Int { 512 }
  /// A chunk is joined with the previous one if they have fewer elements together.
  private static var minimum: Int { 128 }

  /// O(N).
  init(_ elements: [Element] = []) {
    // The chunks are not full, so that there is room for insertions.
    let size = Self.maximum * 3 / 4
    for start in stride(from: 0, to: elements.count, by: size) {
      starts.append(start)
      chunks.append(Array(elements[start..<min(start + size, elements.count)]))
    }
    count = elements.count
  }

  /// O(log N).
  subscript(position: Int) -> Element {
    let chunk = chunk(at: position)
    return chunks[chunk][position - starts[chunk]]
  }

  /// The chunk that contains this position, or, for the position behind the last element, the last chunk.
  private func chunk(at position: Int) -> Int { starts.partitioningIndex { $0 > position } - 1 }

  /// The position of the first element for which the predicate holds, if it also holds for all elements after
  /// that. O(log N).
  func partitioningPosition(where predicate: (Element) -> Bool) -> Int {
    let chunk = chunks.partitioningIndex { $0.last.map(predicate) ?? true }
    if chunk == chunks.count { return count }
    return starts[chunk] + chunks[chunk].partitioningIndex(where: predicate)
  }

  /// O(N).
  func firstPosition(where predicate: (Element) -> Bool) -> Int? {
    for (chunk, start) in zip(chunks, starts) {
      if let offset = chunk.firstIndex(where: predicate) { return start + offset }
    }
    return nil
  }

  mutating func insert(_ element: Element, at position: Int) {
    if chunks.isEmpty {
      self = ChunkedArray([element])
      return
    }
    let chunk = chunk(at: position)
    chunks[chunk].insert(element, at: position - starts[chunk])
    move(from: chunk + 1, by: 1)
    let size = chunks[chunk].count
    if size <= Self.maximum { return }
    // If the insertion is at the end, which is the most frequent case, the previous chunk stays full.
    let half = chunk == chunks.count - 1 && position == count - 1 ? size - 1 : size / 2
    chunks.insert(Array(chunks[chunk][half...]), at: chunk + 1)
    starts.insert(starts[chunk] + half, at: chunk + 1)
    chunks[chunk].removeLast(size - half)
  }

  mutating func remove(at position: Int) -> Element {
    let chunk = chunk(at: position)
    let removed = chunks[chunk].remove(at: position - starts[chunk])
    move(from: chunk + 1, by: -1)
    if chunks[chunk].isEmpty {
      chunks.remove(at: chunk)
      starts.remove(at: chunk)
    } else if chunk > 0, chunks[chunk - 1].count + chunks[chunk].count < Self.minimum {
      chunks[chunk - 1] += chunks.remove(at: chunk)
      starts.remove(at: chunk)
    }
    return removed
  }

  mutating func replace(at position: Int, with element: Element) -> Element {
    let chunk = chunk(at: position)
    return exchange(&chunks[chunk][position - starts[chunk]], with: element)
  }

  private mutating func move(from chunk: Int, by distance: Int) {
    for index in chunk..<starts.count { starts[index] += distance }
    count += distance
  }
}

extension ChunkedArray: Sendable where Element: Sendable {}
