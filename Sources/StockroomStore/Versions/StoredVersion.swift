import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The version that precedes the codec's bytes in a stored value.
///
/// The header consists of the byte FF, the text `version `, the number in decimal digits, and a line feed. Bytes that do
/// not begin with FF and `version ` are version 1. No text in UTF-8 begins with FF, and therefore no JSON and no XML; nor
/// does a binary property list, a CBOR item, or a Protocol Buffers message, so programs that do not support versions cannot
/// decode such a value. If `version ` is not followed by a number and a line feed, a newer version of this library has
/// written the value, and it counts as newer than all versions.
struct StoredVersion: Hashable, Sendable {
  private static let mark = Data([0xFF]) + Data("version ".utf8)
  private static let lineFeed = UInt8(ascii: "\n")
  /// Any number with this many digits fits in an `Int` of 64 bits.
  private static let mostDigits = 18

  /// The version; nil if the header is in a form that this version of the library cannot read.
  let number: Int?
  /// The number of bytes before those of the codec.
  let headerSize: Int

  /// The version of stored bytes. O(1).
  init(of data: Data) {
    guard data.first == 0xFF, data.starts(with: Self.mark) else {
      (number, headerSize) = (1, 0)
      return
    }
    let rest = data.dropFirst(Self.mark.count).prefix(Self.mostDigits + 1)
    let digits = rest.prefix { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
    let isNumber = digits.count < rest.count && rest[digits.endIndex] == Self.lineFeed
    if isNumber, digits.first != UInt8(ascii: "0"), let number = Int(String(decoding: digits, as: UTF8.self))
    {
      self.number = number
      headerSize = Self.mark.count + digits.count + 1
    } else {
      (number, headerSize) = (nil, 0)
    }
  }

  func isNewer(than version: Int) -> Bool { number.map { $0 > version } ?? true }
  func isOlder(than version: Int) -> Bool { number.map { $0 < version } ?? false }

  /// The stored bytes of a version that the codec has encoded as `encoded`.
  ///
  /// Version 1 has no header, as if there were no versions, unless its own bytes begin like a header.
  static func bytes(_ encoded: Data, version: Int) -> Data {
    if version == 1, !(encoded.first == 0xFF && encoded.starts(with: mark)) { return encoded }
    return mark + Data("\(version)\n".utf8) + encoded
  }
}

/// The reason why a stored value is not replaced or decoded: the program does not support its version, which is newer.
///
/// It is the `underlying` error of a `StorageError` with code `StorageError.Code.unsupported`.
public struct NewerVersionError: Error, Hashable, Sendable {
  /// The stored version; nil if a newer version of this library has written it in another form.
  public let version: Int?
  /// The newest version that the program supports: 1 for a type that is not a ``VersionedItem``.
  public let newestKnown: Int

  /// An error with both versions.
  public init(version: Int?, newestKnown: Int) { (self.version, self.newestKnown) = (version, newestKnown) }
}

extension NewerVersionError: CustomStringConvertible {
  /// Both versions, in a sentence.
  public var description: String {
    let stored = version.map { "has version \($0)" } ?? "is in a form that only a newer Stockroom can read"
    return "It \(stored), and version \(newestKnown) is the newest that this program knows."
  }
}

extension StorageError {
  /// An error about the value of a key that a newer program has stored.
  init(newer version: StoredVersion, than newestKnown: Int, of key: CacheKey, _ consequence: String) {
    self.init(
      .unsupported, "The value of \(key) has been stored by a newer program, and \(consequence).",
      underlying: NewerVersionError(version: version.number, newestKnown: newestKnown))
  }

  /// Whether the error is about a value that a newer program has stored.
  var isOfNewerVersion: Bool { underlying is NewerVersionError }
}
