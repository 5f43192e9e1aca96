/// In which order a sorted tree does a batch best: that of the keys, so that what lies together is looked for and
/// changed together. The result is that of the order given, since operations on different keys do not see each other.
package struct BatchOrder: Sendable {
  /// Whether everything that there was is removed, before any of ``positions``.
  package let removesAll: Bool
  /// Where the operations that count are in the batch: those behind the last `removeAll`, in byte order of their keys,
  /// and those of the same key in the order given.
  package let positions: [Int]

  /// O(N log N) for a batch of N operations, mostly without looking at the keys again: about 0.1 µs for each.
  package init(_ batch: [StorageOperation]) {
    let first = batch.lastIndex { $0.key == nil }.map { $0 + 1 } ?? 0
    removesAll = first > 0
    guard batch.count - first > 1 else {
      positions = Array(first..<batch.count)
      return
    }
    var sortable = (first..<batch.count).map { (beginning: batch[$0].key?.beginning ?? 0, position: $0) }
    sortable.sort { left, right in
      if left.beginning != right.beginning { return left.beginning < right.beginning }
      if let leftKey = batch[left.position].key, let rightKey = batch[right.position].key,
        leftKey != rightKey
      {
        return leftKey < rightKey
      }
      return left.position < right.position
    }
    positions = sortable.map(\.position)
  }
}

extension StorageOperation {
  /// The key that the operation is about; nil if it is about all.
  package var key: CacheKey? {
    switch self {
    case .write(_, let key), .remove(let key): key
    case .removeAll: nil
    }
  }
}

extension CacheKey {
  /// The first bytes of the key as one number, which is less than that of another key only if the key is.
  fileprivate var beginning: UInt128 {
    withUTF8 { bytes in
      var number: UInt128 = 0
      withUnsafeMutableBytes(of: &number) {
        $0.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes.prefix(16)))
      }
      return UInt128(bigEndian: number)
    }
  }
}
