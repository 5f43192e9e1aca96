import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An element of a cache's write-behind queue.
enum QueuedWrite<Item: Sendable>: Sendable {
  /// The last assignment to the key.
  case assignment(EncodedKey)
  /// A change whose caller waits for it.
  case change(CacheChange<Item>)
  /// A closure to run after all earlier and before all later elements.
  case barrier(@Sendable () async -> Void)
}

/// A change of one key that is being written.
struct CacheChange<Item: Sendable>: Sendable {
  let key: EncodedKey
  /// The new item; nil removes the entry.
  let item: Item?
  /// The encoded value. Nil if there is none, or if it could not be encoded; then the entry is removed from storage.
  var value: Data?
  /// The size of the value for the limit of memory. Nil if it could not be encoded.
  var size: Int?
  /// The caller that waits for the change; nil if it was assigned.
  var acknowledgement: CheckedContinuation<Void, any Error>?
  /// The error of the write.
  var failure: (any Error)?
  /// Whether storage may have changed despite the failure.
  var mayHaveBeenApplied = false
  /// Whether storage is up to date.
  var isStored = false
}

extension CacheState {
  /// Removes and returns all queued writes. Nil if there are none; the next write then starts a new task.
  mutating func takeQueue() -> [QueuedWrite<Item>]? {
    isWriting = !queue.isEmpty
    defer { queue = [] }
    return isWriting ? queue : nil
  }

  /// Begins to write a change. Later assignments to its key are queued separately.
  mutating func begin(_ write: QueuedWrite<Item>) -> CacheChange<Item>? {
    switch write {
    case .assignment(let key):
      guard let assignment = assigned[key] else { return nil }
      assigned[key]?.isQueued = false
      return CacheChange(key: key, item: assignment.item)
    case .change(let change):
      beginChanging(change.key)
      return change
    case .barrier: return nil
    }
  }

  /// Ends the changes of a batch, which succeeded or failed.
  ///
  /// - Parameter isKept: Whether the written values may stay in memory too: only if the cache was notified of
  ///   the changes of others when the batch began.
  mutating func end(_ changes: [CacheChange<Item>], inMemory isKept: Bool) {
    for change in changes {
      end(change)
      if !isKept, !unwritten.contains(change.key), assigned[change.key] == nil {
        memory.remove(change.key)
      }
    }
    // Others have changed these keys during the write, so the values in memory may be out of date.
    for key in supersededKeys where !unwritten.contains(key) { memory.remove(key) }
    supersededKeys = []
  }

  private mutating func end(_ change: CacheChange<Item>) {
    let key = change.key
    if change.acknowledgement != nil {
      endChanging(key)
      let others = changesUnderWay[key].map { $0 - 1 }
      changesUnderWay[key] = others == 0 ? nil : others
      guard change.failure == nil else {
        // The next read goes to storage, unless the value in memory is still to be written.
        if change.mayHaveBeenApplied && !unwritten.contains(key) { memory.remove(key) }
        return
      }
      unwritten.remove(key)
      // A value that was assigned in the meantime is newer.
      if assigned[key] == nil { memory.set(change.item, size: change.size, for: key) }
    } else {
      if change.isStored { unwritten.remove(key) } else { unwritten.insert(key) }
      if let failure = change.failure { failures.append(failure) }
      guard assigned[key]?.isQueued == false else { return }
      assigned[key] = nil
      memory.set(change.item, size: change.size, for: key)
    }
  }
}
