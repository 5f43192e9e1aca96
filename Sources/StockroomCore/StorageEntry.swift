#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An entry: a key, its value and its timestamps.
public struct StorageEntry: Sendable, Hashable {
  /// The key.
  public var key: CacheKey
  /// The value.
  public var data: Data
  /// When the key went from absent to present.
  public var createdAt: Date
  /// When the value was last written.
  public var updatedAt: Date
  /// The engine's sequence number, which increases with each first write of a key; nil if the engine assigns none. It determines
  /// the order of entries (rule R6). It is not compared, since it has no meaning outside of the engine.
  package var sequence: UInt64?

  /// Creates an entry.
  public init(key: CacheKey, data: Data, createdAt: Date, updatedAt: Date) {
    self.key = key
    self.data = data
    self.createdAt = createdAt
    self.updatedAt = updatedAt
  }

  /// Whether the keys, the values and the times are the same.
  public static func == (left: StorageEntry, right: StorageEntry) -> Bool {
    left.key == right.key && left.data == right.data && left.createdAt == right.createdAt
      && left.updatedAt == right.updatedAt
  }

  /// Feeds the key, the value and the times to the hasher.
  public func hash(into hasher: inout Hasher) {
    hasher.combine(key)
    hasher.combine(data)
    hasher.combine(createdAt)
    hasher.combine(updatedAt)
  }
}

extension StorageEntry {
  /// Creates an entry from the header that the engine stores with it.
  package init(key: CacheKey, data: Data, header: EntryHeader) {
    self.init(key: key, data: data, createdAt: header.createdAt.date, updatedAt: header.updatedAt.date)
    sequence = header.sequence
  }
}

extension [StorageEntry] {
  /// The entries sorted by when their keys were first written (rule R6). O(N log N).
  package consuming func sortedByCreation() -> [StorageEntry] {
    var entries = self
    entries.sort { ($0.sequence ?? 0, $0.key) < ($1.sequence ?? 0, $1.key) }
    return entries
  }
}
