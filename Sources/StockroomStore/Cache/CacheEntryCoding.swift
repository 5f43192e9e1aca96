import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What a cache stores under a key. Numbers are big-endian, dates the bits of their seconds since 2001 as a `Double`.
///
/// | bytes | content |
/// |---|---|
/// | 1 | `C1`, which no text begins with |
/// | 1 | the version of this layout, 1 |
/// | 1 | 1 if there is an expiry, plus 2 if there is a name |
/// | 8 | when the entry was written |
/// | 8 | when it expires, if it does |
/// | 4 + n | the length of the entry's whole name and the name, if the key has only a hash of it |
/// | rest | the value, as the codec encoded it |
struct CacheEntry: Sendable {
  private static let magic: UInt8 = 0xC1
  private static let version: UInt8 = 1

  private struct Parts: OptionSet {
    let rawValue: UInt8
    static let expiry = Parts(rawValue: 1)
    static let proof = Parts(rawValue: 2)
    static let all: Parts = [.expiry, .proof]
  }

  var writtenAt: Date
  var expiresAt: Date?
  /// The whole name in UTF-8 of an entry whose key has only a hash of it.
  var proof: Data?
  var value: Data

  func isExpired(at date: Date) -> Bool { expiresAt.map { $0 <= date } ?? false }

  /// The bytes that are stored.
  var encoded: Data {
    var parts: Parts = []
    if expiresAt != nil { parts.insert(.expiry) }
    if proof != nil { parts.insert(.proof) }
    var data = Data(capacity: 23 + (proof?.count ?? 0) + value.count)
    data.append(contentsOf: [Self.magic, Self.version, parts.rawValue])
    data.append(bigEndian: writtenAt.bits)
    if let expiresAt { data.append(bigEndian: expiresAt.bits) }
    if let proof {
      data.append(bigEndian: UInt32(truncatingIfNeeded: proof.count))
      data.append(proof)
    }
    data.append(value)
    return data
  }
}

extension CacheEntry {
  /// Why bytes are no entry.
  struct Malformed: Error, CustomStringConvertible {
    let description: String
  }

  /// The entry that the bytes were made from. Copies the value.
  ///
  /// - Throws: ``Malformed``.
  init(_ data: Data) throws {
    var rest = data[...]
    guard rest.popFirst() == Self.magic else { throw Malformed(description: "A cache did not write this.") }
    guard rest.popFirst() == Self.version, let parts = rest.popFirst().map(Parts.init),
      parts.isSubset(of: .all)
    else {
      throw Malformed(description: "This is of a version that is unknown here.")
    }
    writtenAt = Date(bits: try rest.popNumber())
    if parts.contains(.expiry) { expiresAt = Date(bits: try rest.popNumber()) }
    if parts.contains(.proof) {
      let length: UInt32 = try rest.popNumber()
      proof = Data(try rest.popBytes(Int(clamping: length)))
    }
    value = Data(rest)
  }
}

extension Date {
  fileprivate var bits: UInt64 { timeIntervalSinceReferenceDate.bitPattern }

  fileprivate init(bits: UInt64) { self.init(timeIntervalSinceReferenceDate: Double(bitPattern: bits)) }
}

extension Data {
  fileprivate mutating func append(bigEndian number: some FixedWidthInteger) {
    Swift.withUnsafeBytes(of: number.bigEndian) { append(contentsOf: $0) }
  }

  fileprivate mutating func popNumber<Number: FixedWidthInteger>() throws -> Number {
    try popBytes(Number.bitWidth / 8).reduce(0) { $0 << 8 | Number($1) }
  }

  fileprivate mutating func popBytes(_ count: Int) throws -> Data {
    guard self.count >= count else { throw CacheEntry.Malformed(description: "The end is missing.") }
    defer { removeFirst(count) }
    return prefix(count)
  }
}
