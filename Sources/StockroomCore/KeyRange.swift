/// The keys that a ``StorageEngine/scan(_:limit:)`` returns, in byte order.
///
/// A key is in the range if it satisfies all three conditions: it starts with ``prefix``, comes after ``after`` and
/// does not come after ``upTo``. A condition that is nil is satisfied by every key.
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
  /// The exclusive lower bound.
  public var after: CacheKey?
  /// The inclusive upper bound.
  public var upTo: CacheKey?

  /// Every key.
  public static let all = KeyRange(after: nil, upTo: nil)

  /// The keys that start with the bytes of `prefix`.
  public static func prefix(_ prefix: String) -> KeyRange {
    var range = KeyRange.all
    range.prefix = prefix
    return range
  }

  /// The keys after `after` (exclusive) up to `upTo` (inclusive).
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

  /// Throws if a bound is not a valid key (rule K1).
  ///
  /// - Throws: ``StorageError`` with code ``StorageError/Code/invalidKey``.
  public func validate() throws {
    try after?.validate()
    try upTo?.validate()
  }
}
