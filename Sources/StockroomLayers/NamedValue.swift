import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A value with the key of its entry in front: the length of the key (2 bytes, little-endian), the key, the value.
enum NamedValue {
  /// Returns the value with the key in front. Does not validate the key: callers do.
  static func combined(_ key: CacheKey, _ value: Data) -> Data {
    let name = key.value.utf8
    var combined = Data([UInt8(truncatingIfNeeded: name.count), UInt8(truncatingIfNeeded: name.count >> 8)])
    combined.reserveCapacity(2 + name.count + value.count)
    combined.append(contentsOf: name)
    combined.append(value)
    return combined
  }

  /// - Parameter place: The place of the value, for the error message.
  /// - Throws: `StorageError` with code `corrupted` if the bytes do not begin with a key.
  static func separated(_ combined: Data, in place: String?) throws -> (key: CacheKey, data: Data) {
    try naming(place) { try separated(combined) }
  }

  private static func separated(_ combined: Data) throws -> (key: CacheKey, data: Data) {
    let start = combined.startIndex
    guard combined.count > 2 else { throw malformed }
    let length = Int(combined[start]) | Int(combined[start + 1]) << 8
    guard 1...CacheKey.maximumLength ~= length, combined.count >= 2 + length,
      let name = String(validating: combined[(start + 2)..<(start + 2 + length)], as: UTF8.self)
    else { throw malformed }
    return (CacheKey(verbatim: name), combined.subdata(in: (start + 2 + length)..<combined.endIndex))
  }

  private static var malformed: StorageError {
    StorageError(.corrupted, "A value does not begin with the key of its entry.")
  }
}

extension [(key: CacheKey, data: Data)] {
  /// The entries whose keys are in the range, in ascending order of keys, at most `limit` of them.
  func inside(_ range: KeyRange, limit: Int?) -> Self {
    let cursor = KeyRangeCursor(range)
    let sorted = filter { cursor.position(of: $0.key) == .inside }.sorted { $0.key < $1.key }
    return Array(sorted.prefix(Swift.max(0, limit ?? .max)))
  }
}
