/// The loads of ``PersistentCache/fetch(_:expiresIn:fallback:)`` and their waiters. Concurrent calls for one key share one load.
///
/// A load is current until its key is changed. After that it continues for its waiters, but its result is not kept, and
/// later calls start a new load.
struct SingleFlightLoads<Value: Sendable>: Sendable {
  typealias Waiter = CheckedContinuation<Value, any Error>

  private struct Load {
    let key: EncodedKey
    let task: Task<Void, Never>
    var priority: TaskPriority
    var waiters: [Int: Waiter] = [:]
  }

  /// The load that a waiter waits for, and the load whose loader the waiter runs in, if any.
  private struct Wait {
    let load: Int
    let caller: Int?
  }

  private var loads: [Int: Load] = [:]
  private var current: [EncodedKey: Int] = [:]
  private var waits: [Int: Wait] = [:]

  /// Adds a waiter to the current load of the key, or starts a load. Returns false and adds nothing if waiting would be a deadlock.
  mutating func join(
    _ key: EncodedKey, as id: Int, _ waiter: Waiter, in context: LoadContext,
    start: (_ load: Int) -> Task<Void, Never>
  ) -> Bool {
    let load = current[key] ?? LoadContext.nextID()
    if let caller = context.load, !WaitForGraph.add(caller, waitsFor: load) { return false }
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

  /// Escalates the priority of a load to that of the current task, as the runtime does for a task that is awaited.
  private mutating func raisePriority(of load: Int) {
    let priority = Task.currentPriority
    guard let entry = loads[load], entry.priority < priority else { return }
    loads[load]?.priority = priority
    Task.detached(priority: priority) { await entry.task.value }
  }

  /// Removes a waiter and returns it. If its load has no other waiter, also ends the load and returns its task, to be cancelled.
  mutating func leave(_ id: Int) -> (waiter: Waiter?, abandoned: Task<Void, Never>?) {
    guard let load = removeWait(id) else { return (nil, nil) }
    let waiter = loads[load]?.waiters.removeValue(forKey: id)
    guard let entry = loads[load], entry.waiters.isEmpty else { return (waiter, nil) }
    _ = end(load)
    return (waiter, entry.task)
  }

  /// Ends a load. Returns its waiters, and whether its result is still current.
  mutating func end(_ load: Int) -> (waiters: [Waiter], isCurrent: Bool) {
    guard let entry = loads.removeValue(forKey: load) else { return ([], false) }
    let isCurrent = current[entry.key] == load
    if isCurrent { current[entry.key] = nil }
    for id in entry.waiters.keys { _ = removeWait(id) }
    return (Array(entry.waiters.values), isCurrent)
  }

  /// Removes the wait of a waiter, and returns its load.
  private mutating func removeWait(_ id: Int) -> Int? {
    guard let wait = waits.removeValue(forKey: id) else { return nil }
    if let caller = wait.caller { WaitForGraph.remove(caller, waitsFor: wait.load) }
    return wait.load
  }

  /// Call it when the key has changed.
  mutating func invalidate(_ key: EncodedKey) { current[key] = nil }

  /// Call it when every key may have changed.
  mutating func invalidateAll() { current = [:] }
}
