import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A parameter of a statement, in the binary format of its type.
struct PostgreSQLParameter {
  let bytes: [UInt8]

  static func bytes(_ data: Data) -> PostgreSQLParameter { PostgreSQLParameter(bytes: [UInt8](data)) }

  static func key(_ key: CacheKey) -> PostgreSQLParameter {
    PostgreSQLParameter(bytes: key.withUTF8 { [UInt8]($0) })
  }

  static func text(_ text: String) -> PostgreSQLParameter { PostgreSQLParameter(bytes: Array(text.utf8)) }

  static func number(_ number: Int64) -> PostgreSQLParameter {
    PostgreSQLParameter(bytes: withUnsafeBytes(of: number.bigEndian) { [UInt8]($0) })
  }
}

extension UUID {
  var parameter: PostgreSQLParameter {
    PostgreSQLParameter(bytes: withUnsafeBytes(of: uuid) { [UInt8]($0) })
  }
}

/// Calls `body` with pointers to the bytes of each parameter.
func withPointers<Result>(
  to parameters: ArraySlice<PostgreSQLParameter>, _ pointers: [UnsafePointer<CChar>?] = [],
  _ body: ([UnsafePointer<CChar>?]) -> Result
) -> Result {
  guard let first = parameters.first else { return body(pointers) }
  return first.bytes.withUnsafeBytes { bytes in
    // A nil pointer would mean NULL.
    withUnsafePointer(to: CChar(0)) { empty in
      let pointer = bytes.baseAddress?.assumingMemoryBound(to: CChar.self) ?? empty
      return withPointers(to: parameters.dropFirst(), pointers + [pointer], body)
    }
  }
}

/// An array of `bytea` or `bigint` in the binary format of the server's `array_recv`:
/// https://doxygen.postgresql.org/arrayfuncs_8c.html
struct PostgreSQLArray {
  /// The types of elements, by the object identifiers of the types.
  enum Elements: Int32 {
    case bytes = 17
    case numbers = 20
  }

  private var count = 0
  private var hasNulls = false
  private var bytes: [UInt8]

  /// - Parameter capacity: The approximate number of bytes of the elements.
  init(of elements: Elements = .bytes, capacity: Int = 0) {
    bytes = []
    bytes.reserveCapacity(20 + capacity)
    // One dimension, whether there are nulls, the type, the count, and the first index. The count and the second word
    // are completed at the end.
    for word in [1, 0, elements.rawValue, 0, 1] { append(word) }
  }

  mutating func append(_ element: UnsafeRawBufferPointer) {
    append(Int32(element.count))
    bytes.append(contentsOf: element)
    count += 1
  }

  /// Appends a number, or NULL for nil.
  mutating func append(_ number: Int64?) {
    if let number {
      withUnsafeBytes(of: number.bigEndian) { append($0) }
    } else {
      append(Int32(-1))
      count += 1
      hasNulls = true
    }
  }

  private mutating func append(_ word: Int32) {
    withUnsafeBytes(of: word.bigEndian) { bytes.append(contentsOf: $0) }
  }

  var parameter: PostgreSQLParameter {
    var bytes = bytes
    if hasNulls { bytes[7] = 1 }
    withUnsafeBytes(of: Int32(count).bigEndian) { bytes.replaceSubrange(12..<16, with: $0) }
    return PostgreSQLParameter(bytes: bytes)
  }

  static func keys(_ keys: some Collection<CacheKey>) -> PostgreSQLParameter {
    var array = PostgreSQLArray(capacity: 48 * keys.count)
    for key in keys { key.withUTF8 { array.append($0) } }
    return array.parameter
  }
}
