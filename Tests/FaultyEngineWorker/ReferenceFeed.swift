import StockroomCore

/// The subscribers of all engines on one place.
package final class ReferenceFeed: Sendable {
  private struct Subscriber {
    let owner: ObjectIdentifier
    /// The origin whose changes it does not receive, for stores.
    let origin: ChangeOrigin?
    let continuation: StorageChanges.Continuation
  }

  private let subscribers = MutexProtected<[Int: Subscriber]>([:])
  private let nextID = MutexProtected(0)

  package init() {}

  /// A stream of later changes.
  package func subscribe(_ owner: ObjectIdentifier) -> StorageChanges {
    let (changes, continuation) = StorageChanges.makeStream(leavingOut: ChangeOrigin.current)
    let id = nextID.withLock { id in
      id += 1
      return id
    }
    subscribers.withLock {
      $0[id] = Subscriber(owner: owner, origin: ChangeOrigin.current, continuation: continuation)
    }
    continuation.onTermination { [weak self] in self?.subscribers.withLock { $0[id] = nil } }
    return changes
  }

  /// Sends the change of a committed batch to all subscribers except those with its origin.
  package func send(_ operations: [StorageOperation], from origin: ChangeOrigin?) {
    guard let change = StorageChange(of: operations) else { return }
    for subscriber in subscribers.withLock({ Array($0.values) })
    where subscriber.origin == nil || subscriber.origin !== origin {
      subscriber.continuation.send(change)
    }
  }

  /// Ends the streams of an engine.
  package func finish(of owner: ObjectIdentifier) {
    let all = subscribers.withLock { Array($0.values) }
    for subscriber in all where subscriber.owner == owner {
      subscriber.continuation.finish()
    }
  }
}

extension StorageOperation {
  var key: CacheKey? {
    switch self {
    case .write(_, let key), .remove(let key): key
    case .removeAll: nil
    }
  }

  var isRemoveAll: Bool { if case .removeAll = self { true } else { false } }
}

extension StorageChange {
  /// The change by these operations; nil if there is none.
  init?(of operations: [StorageOperation]) {
    if operations.contains(where: \.isRemoveAll) {
      self = .everything
    } else if operations.isEmpty {
      return nil
    } else {
      self = .keys(Set(operations.compactMap(\.key)))
    }
  }
}
