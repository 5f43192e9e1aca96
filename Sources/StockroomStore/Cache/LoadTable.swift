/// The loaders that run for ``PersistentCache/fetch(_:expiresIn:fallback:)``, and who waits for them.
///
/// A load is current until its key changes otherwise. Then it goes on for those who wait, but what it yields is out of
/// date for the cache, and whoever comes now gets a load of their own.
struct LoadTable<Value: Sendable>: Sendable {
  typealias Waiter = CheckedContinuation<Value, any Error>

  private struct Load {
    let key: KeyText
    let task: Task<Void, Never>
    var priority: TaskPriority
    var waiters: [Int: Waiter] = [:]
  }

  /// Which load a waiter waits for, and in the loader of which load, if it is one.
  private struct Wait {
    let load: Int
    let caller: Int?
  }

  private var loads: [Int: Load] = [:]
  private var current: [KeyText: Int] = [:]
  private var waits: [Int: Wait] = [:]

  /// Waits for the current load of the key, or for one that is started now. Returns false, and does not wait, if that
  /// load waits for the one in whose loader the caller is.
  mutating func join(
    _ key: KeyText, as id: Int, _ waiter: Waiter, in context: LoadContext,
    start: (_ load: Int) -> Task<Void, Never>
  ) -> Bool {
    let load = current[key] ?? LoadContext.nextID()
    if let caller = context.load, !LoadGraph.add(caller, waitsFor: load) { return false }
    if current[key] == nil {
      loads[load] = Load(key: key, task: start(load), priority: Task.currentPriority)
      current[key] = load
    } else {
      raisePriority(of: load)
    }
    loads[load]?.waiters[id] = waiter
    waits[id] = Wait(load: load, caller: context.load)
    return true
  }

  /// Makes a load as urgent as the task that is about to wait for it, as the runtime does for a task that is awaited.
  private mutating func raisePriority(of load: Int) {
    let priority = Task.currentPriority
    guard let entry = loads[load], entry.priority < priority else { return }
    loads[load]?.priority = priority
    Task.detached(priority: priority) { await entry.task.value }
  }

  /// Waits no longer. Returns the waiter if it did wait, and the task of a load that nobody waits for any more.
  mutating func leave(_ id: Int) -> (waiter: Waiter?, abandoned: Task<Void, Never>?) {
    guard let load = forget(id) else { return (nil, nil) }
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
    for id in entry.waiters.keys { _ = forget(id) }
    return (Array(entry.waiters.values), isCurrent)
  }

  /// Forgets what a waiter waits for, and returns it.
  private mutating func forget(_ id: Int) -> Int? {
    guard let wait = waits.removeValue(forKey: id) else { return nil }
    if let caller = wait.caller { LoadGraph.remove(caller, waitsFor: wait.load) }
    return wait.load
  }

  /// The key has changed.
  mutating func outdate(_ key: KeyText) { current[key] = nil }

  /// Every key has changed.
  mutating func outdateAll() { current = [:] }
}
