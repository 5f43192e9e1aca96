#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension [Data?] {
  /// Whether both arrays contain each value the same number of times, in any order. O(n) in the number of bytes.
  package func hasSameElements(as others: [Data?]) -> Bool {
    count == others.count && difference(from: others) == nil
  }

  /// A value that this array does not contain as often as the other one, and by how many times more, negative if it is
  /// fewer. Nil if there is no such value. O(n) in the number of bytes.
  package func difference(from others: [Data?]) -> (value: Data?, surplus: Int)? {
    var surplus: [WholeValue: Int] = [:]
    for value in self { surplus[WholeValue(value: value), default: 0] += 1 }
    for value in others { surplus[WholeValue(value: value), default: 0] -= 1 }
    return surplus.first { $0.value != 0 }.map { ($0.key.value, $0.value) }
  }
}

/// A value all of whose bytes are hashed. `Data` hashes its first 80 bytes only, so many values with the same first 80
/// bytes would have the same hash, and each would be compared with all others.
private struct WholeValue: Hashable {
  let value: Data?

  func hash(into hasher: inout Hasher) { value?.withUnsafeBytes { hasher.combine(bytes: $0) } }
}
