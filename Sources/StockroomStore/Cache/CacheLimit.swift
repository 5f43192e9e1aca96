/// The capacity of a ``PersistentCache`` in memory or in storage: a number of entries and a number of bytes.
///
/// Both limits apply. Nil means no limit, and a negative number means zero.
public struct CacheLimit: Sendable, Hashable {
  /// The maximum number of entries.
  public var entries: Int?
  /// The maximum size of all values together in bytes, as the codec encoded them, without keys and overhead. In memory a
  /// value may take more than its encoding.
  public var bytes: Int?

  /// Creates a limit of entries, of bytes, of both or of neither.
  public init(entries: Int? = nil, bytes: Int? = nil) {
    self.entries = entries
    self.bytes = bytes
  }

  /// No limit.
  public static let unlimited = CacheLimit()

  package func isExceeded(entries count: Int, bytes size: Int) -> Bool {
    count > max(0, entries ?? .max) || size > max(0, bytes ?? .max)
  }

  /// Whether a single value of this size is within the limit.
  package func admits(bytes size: Int) -> Bool { !isExceeded(entries: 0, bytes: size) }
}
