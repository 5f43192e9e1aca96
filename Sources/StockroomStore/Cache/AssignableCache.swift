/// What makes `cache[key] = value` possible without waiting, next to `try await cache[key]`.
///
/// A subscript of Swift cannot be read asynchronously and assigned synchronously. Two can: ``PersistentCache`` has the
/// one that is read, and this protocol gives it the one that is assigned. It is of no other use.
public protocol AssignableCache<Key, Value> {
  /// What values are found by.
  associatedtype Key
  /// What is kept.
  associatedtype Value
  /// A value and when it expires.
  associatedtype Item

  /// Keeps a value that does not expire, or with nil removes what there is.
  func assign(_ value: Value?, forKey key: Key)

  /// Keeps an item, or with nil removes what there is.
  func assign(item: Item?, forKey key: Key)
}

extension AssignableCache {
  /// Keeps a value that does not expire, or with nil removes what there is; see
  /// ``PersistentCache/assign(_:forKey:)``.
  public subscript(key: Key) -> Value? {
    @available(*, unavailable, message: "Reading may have to wait for storage: try await cache[key]")
    get { nil }
    nonmutating set { assign(newValue, forKey: key) }
  }

  /// Keeps an item, or with nil removes what there is; see ``PersistentCache/assign(item:forKey:)``.
  public subscript(item key: Key) -> Item? {
    @available(*, unavailable, message: "Reading may have to wait for storage: try await cache[item: key]")
    get { nil }
    nonmutating set { assign(item: newValue, forKey: key) }
  }
}
