#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An entry with everything an engine knows about it.
public struct StorageEntry: Sendable, Hashable {
  /// The name of the entry.
  public var key: CacheKey
  /// The value.
  public var data: Data
  /// When the key went from absent to present.
  public var createdAt: Date
  /// When the value was last written.
  public var updatedAt: Date

  /// An entry with these parts.
  public init(key: CacheKey, data: Data, createdAt: Date, updatedAt: Date) {
    self.key = key
    self.data = data
    self.createdAt = createdAt
    self.updatedAt = updatedAt
  }
}
