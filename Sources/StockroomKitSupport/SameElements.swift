#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension [Data?] {
  /// Whether both contain the same values, each as often, in any order. O(n) in the number of bytes.
  package func hasSameElements(as others: [Data?]) -> Bool {
    if count != others.count { return false }
    var surplus: [WholeValue: Int] = [:]
    for value in self { surplus[WholeValue(value: value), default: 0] += 1 }
    for value in others { surplus[WholeValue(value: value), default: 0] -= 1 }
    return surplus.values.allSatisfy { $0 == 0 }
  }
}

/// A value all of whose bytes are hashed. `Data` hashes its first 80 bytes only, so that each of many values that have
/// the same beginning would be compared with all others.
private struct WholeValue: Hashable {
  let value: Data?

  func hash(into hasher: inout Hasher) { value?.withUnsafeBytes { hasher.combine(bytes: $0) } }
}
