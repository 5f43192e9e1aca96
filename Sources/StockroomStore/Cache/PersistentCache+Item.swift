#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension PersistentCache {
  /// A value and when it expires.
  public typealias Item = CacheItem<Value>
}

/// A value and when it expires.
///
/// ```swift
/// cache[item: key] = Item(value, expiresIn: 60 * 60)
/// ```
///
/// Where a module has an `Item` of its own, write `.init(value, expiresIn: 60 * 60)`.
public typealias Item = CacheItem

/// A value in a ``PersistentCache`` and when it expires.
public struct CacheItem<Value: Sendable>: Sendable {
  /// The value.
  public let value: Value
  /// From when on a regular read ignores the value. Nil means never.
  public let expiresAt: Date?
  /// Seconds that begin when the item is given to a cache.
  private var lifetime: TimeInterval?

  /// A value that expires some seconds from now.
  ///
  /// "Now" is the moment at which the item is given to a cache, by the cache's clock. A lifetime that is not
  /// positive is over at once; `.infinity` is never over.
  public init(_ value: Value, expiresIn lifetime: TimeInterval) {
    self.init(value, expiresAt: Date() + lifetime)
    self.lifetime = lifetime
  }

  /// A value that expires at a date, or, where that is nil, never.
  public init(_ value: Value, expiresAt: Date? = nil) {
    self.value = value
    self.expiresAt = expiresAt
  }

  /// Whether the value has expired at this date.
  public func isExpired(at date: Date) -> Bool { expiresAt.map { $0 <= date } ?? false }

  /// The item as a cache keeps it that gets it now.
  func given(at now: Date) -> CacheItem {
    guard let lifetime else { return self }
    return CacheItem(value, expiresAt: now + lifetime)
  }
}

extension CacheItem: Equatable where Value: Equatable {
  /// Whether value and expiry are equal.
  public static func == (left: Self, right: Self) -> Bool {
    left.value == right.value && left.expiresAt == right.expiresAt
  }
}
