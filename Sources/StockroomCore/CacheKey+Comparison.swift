#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

// `String` compares and hashes by canonical equivalence, so these conformances use the bytes instead.

extension CacheKey: Hashable {
  /// Whether both values have the same bytes.
  public static func == (left: CacheKey, right: CacheKey) -> Bool {
    left.withUTF8 { left in
      right.withUTF8 { right in left.count == right.count && left.compare(with: right) == 0 }
    }
  }

  /// Feeds the bytes of ``value`` to the hasher.
  public func hash(into hasher: inout Hasher) {
    withUTF8 { hasher.combine(bytes: $0) }
  }
}

extension CacheKey: Comparable {
  /// Whether the bytes of the left value come first, compared as unsigned numbers. Scans return keys in this order.
  public static func < (left: CacheKey, right: CacheKey) -> Bool {
    left.withUTF8 { left in right.withUTF8 { right in left.compare(with: right) < 0 } }
  }
}

extension CacheKey: CustomStringConvertible {
  /// The value, in quotation marks and with its invisible characters escaped.
  public var description: String { value.debugDescription }
}

extension CacheKey {
  /// Calls `body` with the bytes that identify the entry. Costs no copy.
  @inlinable package func withUTF8<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows
    -> Result
  {
    if let result = try value.utf8.withContiguousStorageIfAvailable({ try body(UnsafeRawBufferPointer($0)) })
    {
      return result
    }
    // Unreachable for values made contiguous at initialization; correct all the same.
    return try Array(value.utf8).withUnsafeBytes(body)
  }

  /// The key that has these bytes, or nil if they are not UTF-8 and so cannot be a key.
  package init?(utf8 bytes: UnsafeRawBufferPointer) {
    // String(validating:as:) looks types up each time it is called, which takes longer than decoding. Decoding replaces invalid
    // UTF-8, which the comparison with the original bytes detects.
    self.init(contiguous: String(decoding: bytes, as: UTF8.self))
    guard withUTF8({ $0.count == bytes.count && $0.compare(with: bytes) == 0 }) else { return nil }
  }
}

extension UnsafeRawBufferPointer {
  /// Returns a negative number, zero or a positive number if these bytes come before the others, equal them or come after them.
  @inlinable package func compare(with other: UnsafeRawBufferPointer) -> Int {
    let common = Swift.min(count, other.count)
    if common > 0, let left = baseAddress, let right = other.baseAddress {
      let order = memcmp(left, right, common)
      if order != 0 { return Int(order) }
    }
    return count - other.count
  }
}
