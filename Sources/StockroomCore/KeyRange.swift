/// Which keys a ``StorageEngine/scan(_:limit:)`` is about, in byte order of keys.
///
/// The three conditions add up: a key is in the range if it starts with ``prefix``, comes after ``after`` and
/// does not come after ``upTo``. A condition that is nil admits every key.
///
/// ```swift
/// try await engine.scan(.prefix("user/"), limit: 100)                   // the first page
/// var next = KeyRange.prefix("user/")
/// next.after = lastKeyOfThePage
/// try await engine.scan(next, limit: 100)                               // the page that follows
/// ```
public struct KeyRange: Sendable, Hashable {
  /// The bytes that the key starts with.
  public var prefix: String?
  /// The key comes after this one, which itself is not in the range.
  public var after: CacheKey?
  /// The key does not come after this one, which itself is in the range.
  public var upTo: CacheKey?

  /// Every key.
  public static let all = KeyRange(after: nil, upTo: nil)

  /// The keys that start with the bytes of `prefix`.
  public static func prefix(_ prefix: String) -> KeyRange {
    var range = KeyRange.all
    range.prefix = prefix
    return range
  }

  /// The keys after `after`, which is excluded, up to `upTo`, which is included.
  public init(after: CacheKey?, upTo: CacheKey?) {
    self.after = after
    self.upTo = upTo
  }

  /// Whether the key is in the range. Costs time proportional to the length of the key.
  public func contains(_ key: CacheKey) -> Bool {
    KeyRangeCursor(self).position(of: key) == .inside
  }

  /// Compares the bytes of the prefixes and of the keys.
  public static func == (left: KeyRange, right: KeyRange) -> Bool {
    left.prefix.map(CacheKey.init(verbatim:)) == right.prefix.map(CacheKey.init(verbatim:))
      && left.after == right.after && left.upTo == right.upTo
  }

  /// Feeds the bytes of the prefix and of the keys to the hasher.
  public func hash(into hasher: inout Hasher) {
    hasher.combine(prefix.map(CacheKey.init(verbatim:)))
    hasher.combine(after)
    hasher.combine(upTo)
  }

  /// Throws if a bound is no valid key (rule K1).
  ///
  /// - Throws: ``StorageError`` with code ``StorageError/Code/invalidKey``.
  public func validate() throws {
    try after?.validate()
    try upTo?.validate()
  }
}
