/// The loaders that run for ``PersistentCache/fetch(_:expiresIn:fallback:)``, and who waits for them.
///
/// A load is current until its key changes otherwise. Then it goes on for those who wait, but what it yields is out of
/// date for the cache, and whoever comes now gets a load of their own.
struct LoadTable<Value: Sendable>: Sendable {
  typealias Waiter = CheckedContinuation<Value, any Error>

  private struct Load {
    let key: KeyText
    let task: Task<Void, Never>
    var waiters: [Int: Waiter] = [:]
  }

  private var loads: [Int: Load] = [:]
  private var current: [KeyText: Int] = [:]
  private var loadOfWaiter: [Int: Int] = [:]
  private var lastID = 0

  /// A number that no load and no waiter has.
  mutating func nextID() -> Int {
    lastID += 1
    return lastID
  }

  /// Waits for the current load of the key, or for one that is started now.
  mutating func join(
    _ key: KeyText, as id: Int, _ waiter: Waiter, start: (_ load: Int) -> Task<Void, Never>
  ) {
    let load = current[key] ?? nextID()
    if current[key] == nil {
      loads[load] = Load(key: key, task: start(load))
      current[key] = load
    }
    loads[load]?.waiters[id] = waiter
    loadOfWaiter[id] = load
  }

  /// Waits no longer. Returns the waiter if it did wait, and the task of a load that nobody waits for any more.
  mutating func leave(_ id: Int) -> (waiter: Waiter?, abandoned: Task<Void, Never>?) {
    guard let load = loadOfWaiter.removeValue(forKey: id) else { return (nil, nil) }
    let waiter = loads[load]?.waiters.removeValue(forKey: id)
    guard let entry = loads[load], entry.waiters.isEmpty else { return (waiter, nil) }
    _ = end(load)
    return (waiter, entry.task)
  }

  /// Ends a load. Returns who waits for it, and whether what it yielded is still up to date.
  mutating func end(_ load: Int) -> (waiters: [Waiter], isCurrent: Bool) {
    guard let entry = loads.removeValue(forKey: load) else { return ([], false) }
    let isCurrent = current[entry.key] == load
    if isCurrent { current[entry.key] = nil }
    for id in entry.waiters.keys { loadOfWaiter[id] = nil }
    return (Array(entry.waiters.values), isCurrent)
  }

  /// The key has changed.
  mutating func outdate(_ key: KeyText) { current[key] = nil }

  /// Every key has changed.
  mutating func outdateAll() { current = [:] }
}
