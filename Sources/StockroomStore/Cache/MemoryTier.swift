/// The entries that a cache has in memory. What was used least recently goes first. Everything about one key is O(1).
struct MemoryTier<Item: Sendable>: Sendable {
  private var items = RecencyList<KeyText, Item>()
  private let limit: CacheLimit

  /// What has been dropped. To be let go of outside the lock, since a value may use the cache as it goes.
  private var dropped: [Item] = []

  init(limit: CacheLimit) { self.limit = limit }

  /// The item of a key, which counts as used now.
  mutating func use(_ key: KeyText) -> Item? { items.use(key) }

  /// The item of a key, which does not count as used.
  func peek(_ key: KeyText) -> Item? { items[key] }

  /// Keeps or drops an item. One that is larger than the limit is not kept, rather than driving out all others, and
  /// neither is one of unknown size where there is a limit of bytes.
  mutating func set(_ item: Item?, size: Int?, for key: KeyText) {
    guard let item, limit.admits(bytes: size ?? .max) else { return remove(key) }
    drop(items.put(item, size: size ?? 0, for: key))
    while limit.isExceeded(entries: items.count, bytes: items.size) { drop(items.removeOldest()) }
  }

  mutating func remove(_ key: KeyText) { drop(items.remove(key)) }

  /// Drops every item for whose key and value the condition holds. O(N).
  mutating func removeAll(where isUnwanted: (KeyText, Item) -> Bool) {
    for key in items.keysFromOldest.map(\.key) {
      if let item = items[key], isUnwanted(key, item) { remove(key) }
    }
  }

  mutating func takeDropped() -> [Item] {
    guard !dropped.isEmpty else { return [] }
    defer { dropped = [] }
    return dropped
  }

  mutating func drop(_ item: Item?) {
    if let item { dropped.append(item) }
  }
}
