/// The entries of a cache in memory. The least recently used entries are evicted first. Operations on one key are O(1).
struct MemoryTier<Item: Sendable>: Sendable {
  private var items = LRUList<EncodedKey, Item>()
  private let limit: CacheLimit

  /// Removed items, which must be released outside the lock: their `deinit` may use the cache, and releasing
  /// many takes long.
  struct Dropped: Sendable {
    fileprivate var items: [Item] = []
    fileprivate var lists: [LRUList<EncodedKey, Item>] = []

    fileprivate var isEmpty: Bool { items.isEmpty && lists.isEmpty }
  }

  private var dropped = Dropped()

  init(limit: CacheLimit) { self.limit = limit }

  /// The item of a key, which becomes the most recently used.
  mutating func use(_ key: EncodedKey) -> Item? { items.use(key) }

  /// The item of a key, without marking it as used.
  func peek(_ key: EncodedKey) -> Item? { items[key] }

  /// Sets or removes an item. An item that is larger than the limit is removed instead of evicting all
  /// others, and so is an item of unknown size if there is a limit of bytes.
  mutating func set(_ item: Item?, size: Int?, for key: EncodedKey) {
    guard let item, limit.admits(bytes: size ?? .max) else { return remove(key) }
    drop(items.put(item, size: size ?? 0, for: key))
    while limit.isExceeded(entries: items.count, bytes: items.size) { drop(items.removeOldest()) }
  }

  mutating func remove(_ key: EncodedKey) { drop(items.remove(key)) }

  /// Removes every item that satisfies the predicate. O(N).
  mutating func removeAll(where shouldRemove: (EncodedKey, Item) -> Bool) {
    for key in items.keysFromOldest.map(\.key) {
      if let item = items[key], shouldRemove(key, item) { remove(key) }
    }
  }

  /// Removes all items except those of these keys, whose order of use is lost. O(keys).
  mutating func removeAll(except keys: Set<EncodedKey> = []) {
    if items.count == 0 { return }
    var kept = LRUList<EncodedKey, Item>()
    for key in keys {
      if let item = items[key] { kept.put(item, size: items.size(of: key) ?? 0, for: key) }
    }
    dropped.lists.append(exchange(&items, with: kept))
  }

  mutating func takeDropped() -> Dropped {
    if dropped.isEmpty { return Dropped() }
    return exchange(&dropped, with: Dropped())
  }

  mutating func drop(_ item: Item?) {
    if let item { dropped.items.append(item) }
  }
}
