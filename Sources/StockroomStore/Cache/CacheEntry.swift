import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The bytes that a cache stores under a key. Numbers are big-endian; a date is the bit pattern of its seconds since 2001
/// as a `Double`.
///
/// | bytes | content |
/// |---|---|
/// | 1 | `C1`, a byte that never occurs in UTF-8 |
/// | 1 | the version of this layout, 1 |
/// | 1 | flags: 1 if there is an expiry, 2 if there is a full name |
/// | 8 | the time of the write |
/// | 8 | the time of expiry, if there is one |
/// | 4 + n | the length of the entry's full name and the name, if the key contains a hash of it |
/// | rest | the value, as the codec encoded it |
struct CacheEntry: Sendable {
  private static let magic: UInt8 = 0xC1
  private static let version: UInt8 = 1

  private struct Flags: OptionSet {
    let rawValue: UInt8
    static let expiry = Flags(rawValue: 1)
    static let fullName = Flags(rawValue: 2)
    static let all: Flags = [.expiry, .fullName]
  }

  var writtenAt: Date
  var expiresAt: Date?
  /// The full name in UTF-8, if the key of the entry contains a hash of it.
  var fullName: Data?
  var value: Data

  func isExpired(at date: Date) -> Bool { expiresAt.map { $0 <= date } ?? false }

  /// The bytes that are stored.
  var encoded: Data {
    var flags: Flags = []
    if expiresAt != nil { flags.insert(.expiry) }
    if fullName != nil { flags.insert(.fullName) }
    var data = Data(capacity: 23 + (fullName?.count ?? 0) + value.count)
    data.append(contentsOf: [Self.magic, Self.version, flags.rawValue])
    data.append(bigEndian: writtenAt.bits)
    if let expiresAt { data.append(bigEndian: expiresAt.bits) }
    if let fullName {
      data.append(bigEndian: UInt32(truncatingIfNeeded: fullName.count))
      data.append(fullName)
    }
    data.append(value)
    return data
  }
}

extension CacheEntry {
  /// The reason why bytes are not an entry.
  struct Malformed: Error, CustomStringConvertible {
    let description: String
  }

  /// Decodes an entry. Copies the value.
  ///
  /// - Throws: ``Malformed``.
  init(_ data: Data) throws {
    var rest = data[...]
    guard rest.popFirst() == Self.magic else {
      throw Malformed(description: "The first byte is not that of a cache entry.")
    }
    guard rest.popFirst() == Self.version, let flags = rest.popFirst().map(Flags.init),
      flags.isSubset(of: .all)
    else {
      throw Malformed(description: "The version is unknown.")
    }
    writtenAt = Date(bits: try rest.popNumber())
    if flags.contains(.expiry) { expiresAt = Date(bits: try rest.popNumber()) }
    if flags.contains(.fullName) {
      let length: UInt32 = try rest.popNumber()
      fullName = Data(try rest.popBytes(Int(clamping: length)))
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
    guard self.count >= count else { throw CacheEntry.Malformed(description: "The entry is truncated.") }
    defer { removeFirst(count) }
    return prefix(count)
  }
}
