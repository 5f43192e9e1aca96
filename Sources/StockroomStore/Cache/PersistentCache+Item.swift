#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension PersistentCache {
  /// A value with its expiry.
  public typealias Item = CacheItem<Value>
}

/// A value with its expiry.
///
/// ```swift
/// cache[item: key] = Item(value, expiresIn: 60 * 60)
/// ```
///
/// In a module with its own type `Item`, write `.init(value, expiresIn: 60 * 60)`.
public typealias Item = CacheItem

/// A value of a ``PersistentCache`` with its expiry.
public struct CacheItem<Value: Sendable>: Sendable {
  /// The value.
  public let value: Value
  /// The time from which a regular read ignores the value. Nil means never.
  public let expiresAt: Date?
  /// Seconds from the assignment to a cache.
  private var lifetime: TimeInterval?

  /// Creates an item that expires `lifetime` seconds after it is assigned to a cache, by the cache's clock.
  ///
  /// With a lifetime of zero or less it has expired immediately; with `.infinity` it never expires.
  public init(_ value: Value, expiresIn lifetime: TimeInterval) {
    self.init(value, expiresAt: Date() + lifetime)
    self.lifetime = lifetime
  }

  /// Creates an item that expires at a date, or never if that is nil.
  public init(_ value: Value, expiresAt: Date? = nil) {
    self.value = value
    self.expiresAt = expiresAt
  }

  /// Whether the value has expired at this date.
  public func isExpired(at date: Date) -> Bool { expiresAt.map { $0 <= date } ?? false }

  /// The item with the expiry that results if its lifetime starts now. An item without a lifetime does not change.
  func startingLifetime(at now: Date) -> CacheItem {
    guard let lifetime else { return self }
    return CacheItem(value, expiresAt: now + lifetime)
  }
}

extension CacheItem: Equatable where Value: Equatable {
  /// Whether values and expiries are equal.
  public static func == (left: Self, right: Self) -> Bool {
    left.value == right.value && left.expiresAt == right.expiresAt
  }
}
