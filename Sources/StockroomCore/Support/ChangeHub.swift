import Synchronization

/// Reports commits of this process to the subscribers of an engine (rules X1, X4).
package final class ChangeHub: Sendable {
  private struct Subscriber {
    let continuation: StorageChanges.Continuation
    /// The origin whose changes it excludes.
    let origin: ChangeOrigin?
    /// The engine of the subscription.
    let owner: ObjectIdentifier?
  }

  private struct State {
    var nextID = 0
    var subscribers: [Int: Subscriber] = [:]
  }

  private let state = MutexProtected(State())
  private let subscriberCount = Atomic(0)
  private let writesUnderWay = Atomic(0)
  /// Detects subscribers in other feeds.
  private let check: SubscriberCheck?

  package init() { check = nil }

  init(_ check: SubscriberCheck) { self.check = check }

  /// Whether there is a subscriber. If there is none, a commit costs no more than this check.
  package var hasSubscribers: Bool { subscriberCount.load(ordering: .sequentiallyConsistent) > 0 }

  // MARK: Subscribing

  /// A stream of the changes from now on.
  ///
  /// - Parameters:
  ///   - origin: The origin whose changes are excluded.
  ///   - owner: The engine, if engines share the hub.
  ///   - onEnd: Called when the subscription has ended.
  package func subscribe(
    without origin: ChangeOrigin?, of owner: ObjectIdentifier? = nil,
    onEnd: @escaping @Sendable () -> Void = {}
  ) -> StorageChanges {
    let (changes, continuation) = StorageChanges.makeStream(leavingOut: origin)
    let subscriber = Subscriber(continuation: continuation, origin: origin, owner: owner)
    let id = state.withLock { state in
      state.nextID += 1
      state.subscribers[state.nextID] = subscriber
      subscriberCount.store(state.subscribers.count, ordering: .sequentiallyConsistent)
      return state.nextID
    }
    continuation.onTermination { [weak self] in
      self?.remove(id)
      onEnd()
    }
    // A write in progress may have been committed before this, and be acknowledged after it.
    if writesUnderWay.load(ordering: .sequentiallyConsistent) > 0 { continuation.send(.everything) }
    return changes
  }

  private func remove(_ id: Int) {
    state.withLock { state in
      state.subscribers[id] = nil
      subscriberCount.store(state.subscribers.count, ordering: .sequentiallyConsistent)
    }
  }

  /// Ends all streams, or only those of an engine (rule X5).
  package func finish(of owner: ObjectIdentifier? = nil) {
    let continuations = state.withLock { state in
      let ended = state.subscribers.filter { owner == nil || $0.value.owner == owner }
      for id in ended.keys { state.subscribers[id] = nil }
      subscriberCount.store(state.subscribers.count, ordering: .sequentiallyConsistent)
      return ended.values.map(\.continuation)
    }
    for continuation in continuations { continuation.finish() }
  }

  // MARK: Reporting

  /// Begins a write. It is reported to every subscriber that arrives before the write is acknowledged. ``endWrite()`` must
  /// follow.
  package func beginWrite() {
    _ = writesUnderWay.wrappingAdd(1, ordering: .sequentiallyConsistent)
    check?.beginWrite()
  }

  /// Ends a write.
  package func endWrite() {
    check?.endWrite()
    _ = writesUnderWay.wrappingSubtract(1, ordering: .sequentiallyConsistent)
  }

  /// Reports a commit: its requests, and the resulting operations of each. Evaluates neither if there are no
  /// subscribers.
  package func send(
    _ requests: @autoclosure () -> [WriteRequest], _ operations: @autoclosure () -> [[StorageOperation]]
  ) {
    guard hasSubscribers else { return }
    let (requests, operations) = (requests(), operations())
    for subscriber in state.withLock({ Array($0.subscribers.values) }) {
      let others = zip(requests, operations).filter {
        subscriber.origin == nil || $0.0.origin !== subscriber.origin
      }
      if let change = StorageChange(others.map(\.1)) { subscriber.continuation.send(change) }
    }
  }

  /// Reports a change that was made elsewhere to all subscribers.
  package func send(_ change: StorageChange) {
    for subscriber in state.withLock({ Array($0.subscribers.values) }) {
      subscriber.continuation.send(change)
    }
  }
}

extension StorageChange {
  /// The change that the operations make; nil if they change nothing.
  package init?(_ batches: [[StorageOperation]], keyLimit: Int = StorageChanges.defaultKeyLimit) {
    var keys: Set<CacheKey> = []
    for operation in batches.joined() {
      switch operation {
      case .write(_, let key), .remove(let key): keys.insert(key)
      case .removeAll:
        self = .everything
        return
      }
      if keys.count > keyLimit {
        self = .everything
        return
      }
    }
    if keys.isEmpty { return nil }
    self = .keys(keys)
  }
}
