/// The subscripts of ``PersistentCache`` that are assigned synchronously, `cache[key] = value`.
///
/// A Swift subscript cannot have an asynchronous getter and a synchronous setter, so there are two subscripts:
/// ``PersistentCache`` declares the one that is read, `try await cache[key]`, and this protocol the one that is assigned.
public protocol AssignableCache<Key, Value> {
  /// The keys of the cache.
  associatedtype Key
  /// The values of the cache.
  associatedtype Value
  /// A value with its expiry.
  associatedtype Item

  /// Sets a value that does not expire; nil removes the entry.
  func assign(_ value: Value?, forKey key: Key)

  /// Sets an item; nil removes the entry.
  func assign(item: Item?, forKey key: Key)
}

extension AssignableCache {
  /// Sets a value that does not expire; nil removes the entry. See ``PersistentCache/assign(_:forKey:)``.
  public subscript(key: Key) -> Value? {
    @available(*, unavailable, message: "Reading may have to wait for storage: try await cache[key]")
    get { nil }
    nonmutating set { assign(newValue, forKey: key) }
  }

  /// Sets an item; nil removes the entry. See ``PersistentCache/assign(item:forKey:)``.
  public subscript(item key: Key) -> Item? {
    @available(*, unavailable, message: "Reading may have to wait for storage: try await cache[item: key]")
    get { nil }
    nonmutating set { assign(item: newValue, forKey: key) }
  }
}
