/// The name of an entry in a storage engine.
///
/// A key is identified by its ``value``: 1 to 511 bytes of UTF-8, compared byte for byte (rules K1 to K3). Texts that
/// Swift's `String` considers equal, such as `é` written as one scalar and as two, are different keys. There is one
/// initializer for each way of choosing the value:
///
/// ```swift
/// CacheKey("any text, of any length")            // a hash of the text: always a valid key
/// CacheKey(url: URL(string: "https://example.com/a")!)   // a hash of the URL without scheme, www. and final /
/// CacheKey(verbatim: "user/42")                  // the text itself: listed, scanned and ordered as written
/// ```
public struct CacheKey: Sendable {
  /// The maximum length of a key in bytes of UTF-8. It is LMDB's limit, which all engines share.
  public static let maximumLength = 511

  /// The text whose UTF-8 identifies the entry.
  public let value: String

  /// The text that the key was made from, before hashing. For information only: it is neither stored nor compared.
  public let rawValue: String

  /// Creates a key whose value is the MD5 digest of the text, formatted like a UUID.
  ///
  /// Accepts any text, including the empty one. Hashing takes time proportional to the length of the text. MD5
  /// distributes keys evenly, but an attacker can construct two texts with the same digest.
  public init(_ text: String) {
    self.init(value: MD5.digest(of: text.utf8).uuidFormatted, rawValue: text)
  }

  /// Creates a key whose value is the text itself.
  ///
  /// The text is not checked here: if it is empty or longer than ``maximumLength`` bytes, every method that takes the key
  /// throws ``StorageError/Code/invalidKey``.
  public init(verbatim text: String) {
    self.init(value: text, rawValue: text)
  }

  init(value: String, rawValue: String) {
    var value = value
    value.makeContiguousUTF8()
    self.value = value
    self.rawValue = rawValue
  }

  /// Creates a key whose raw value is the value itself, which must already be contiguous UTF-8.
  init(contiguous value: String) {
    self.value = value
    rawValue = value
  }

  /// Throws unless the key has 1 to ``maximumLength`` bytes. All engines share this check (rule K1).
  ///
  /// - Throws: ``StorageError`` with code ``StorageError/Code/invalidKey``.
  @inlinable public func validate() throws {
    guard 1...Self.maximumLength ~= value.utf8.count else { throw lengthError }
  }

  @usableFromInline var lengthError: StorageError {
    let length = value.utf8.count
    if length == 0 {
      return StorageError(.invalidKey, "A key must have at least 1 byte, and this one is empty.")
    }
    return StorageError(
      .invalidKey,
      "A key may have \(Self.maximumLength) bytes of UTF-8, and this one has \(length): "
        + "\(value.prefix(40).debugDescription)…")
  }
}

extension Sequence<CacheKey> {
  /// Throws unless every key has 1 to ``CacheKey/maximumLength`` bytes.
  ///
  /// - Throws: ``StorageError`` with code ``StorageError/Code/invalidKey``, for the first invalid key.
  @inlinable public func validate() throws {
    for key in self { try key.validate() }
  }
}
