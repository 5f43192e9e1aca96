/// A batch sorted by key, which is the most efficient order for a sorted tree, since adjacent entries are searched and changed
/// together. The result is the same as in the given order, since operations on different keys do not affect each other.
package struct SortedBatch: Sendable {
  /// The operations in the given order.
  package let operations: [StorageOperation]
  /// One element for each operation, or empty.
  private let times: [EntryTimes?]
  /// Whether all existing entries are removed first.
  package let removesAll: Bool
  /// The positions of the operations after the last `removeAll`: in byte order of their keys, with operations on the same key in
  /// the given order.
  private let positions: [Int]
  /// The bytes of the keys after the last `removeAll`, contiguous: comparing and searching them is cheaper
  /// than for strings spread over memory.
  private let bytes: [UInt8]
  /// The start of each key in ``bytes``, and finally the end of the last one.
  private let starts: [Int]

  /// O(N log N) for N operations in all batches together.
  ///
  /// - Parameter times: The result of ``Swift/Collection/times(of:)`` for them.
  package init(joining batches: [[StorageOperation]], _ times: [EntryTimes?] = []) {
    self.times = times
    operations = batches.count == 1 ? batches[0] : Array(batches.joined())
    let first = operations.lastIndex { if case .removeAll = $0 { true } else { false } }.map { $0 + 1 } ?? 0
    removesAll = first > 0

    var bytes: [UInt8] = []
    var starts = [0]
    var sortable: [(beginning: UInt128, index: Int)] = []
    bytes.reserveCapacity(48 * (operations.count - first))
    starts.reserveCapacity(operations.count - first + 1)
    sortable.reserveCapacity(operations.count - first)
    for operation in operations[first...] {
      switch operation {
      case .write(_, let key), .remove(let key):
        key.withUTF8 { key in
          sortable.append((Self.beginning(of: key), starts.count - 1))
          bytes.append(contentsOf: key)
          starts.append(bytes.count)
        }
      case .removeAll: break  // There is none behind the last one.
      }
    }
    bytes.withUnsafeBytes { bytes in
      func key(_ index: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: bytes[starts[index]..<starts[index + 1]])
      }
      sortable.sort { left, right in
        if left.beginning != right.beginning { return left.beginning < right.beginning }
        let order = key(left.index).compare(with: key(right.index))
        return order == 0 ? left.index < right.index : order < 0
      }
    }
    positions = sortable.map { first + $0.index }
    self.bytes = bytes
    self.starts = starts
  }

  /// The timestamps of the entry that the operation writes, or nil for the time of the commit.
  package func times(at position: Int) -> EntryTimes? { times.isEmpty ? nil : times[position] }

  /// Calls `body` for each key in byte order, with the positions of its operations in the given order.
  package func forEachKey(
    _ body: (_ key: UnsafeRawBufferPointer, _ positions: ArraySlice<Int>) throws -> Void
  ) rethrows {
    let offset = operations.count - (starts.count - 1)
    try bytes.withUnsafeBytes { bytes in
      func key(at place: Int) -> UnsafeRawBufferPointer {
        let index = positions[place] - offset
        return UnsafeRawBufferPointer(rebasing: bytes[starts[index]..<starts[index + 1]])
      }
      var place = 0
      while place < positions.count {
        let first = key(at: place)
        var end = place + 1
        while end < positions.count, key(at: end).compare(with: first) == 0 { end += 1 }
        try body(first, positions[place..<end])
        place = end
      }
    }
  }

  /// The first bytes of a key as a number, which is less than that of another key only if the key is less.
  private static func beginning(of key: UnsafeRawBufferPointer) -> UInt128 {
    var number: UInt128 = 0
    withUnsafeMutableBytes(of: &number) {
      $0.copyMemory(from: UnsafeRawBufferPointer(rebasing: key.prefix(16)))
    }
    return UInt128(bigEndian: number)
  }
}
