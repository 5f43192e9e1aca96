/// How much a ``PersistentCache`` keeps in memory, or in storage.
///
/// Both conditions hold; nil means no limit, and less than nothing is nothing.
public struct CacheLimit: Sendable, Hashable {
  /// The most entries.
  public var entries: Int?
  /// The most bytes of all values together, as the codec encoded them. What surrounds a value is not counted, and
  /// neither is that a value may take more room in memory than its encoding.
  public var bytes: Int?

  /// A limit of entries, of bytes, of both or of neither.
  public init(entries: Int? = nil, bytes: Int? = nil) {
    self.entries = entries
    self.bytes = bytes
  }

  /// No limit.
  public static let unlimited = CacheLimit()

  func isExceeded(entries count: Int, bytes size: Int) -> Bool {
    count > max(0, entries ?? .max) || size > max(0, bytes ?? .max)
  }

  /// Whether a value of this size is within the limit when it is alone.
  func admits(bytes size: Int) -> Bool { !isExceeded(entries: 0, bytes: size) }
}
