import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What waits in a cache's queue.
enum CacheWork<Item: Sendable>: Sendable {
  /// Write what was last assigned to the key.
  case assignment(KeyText)
  /// Make a change that somebody waits for.
  case change(CacheChange<Item>)
  /// Do something after all that came before, and before all that comes after.
  case task(@Sendable () async -> Void)
}

/// A change of one key on its way into storage.
struct CacheChange<Item: Sendable>: Sendable {
  let key: KeyText
  /// What the key has then; nil removes it.
  let item: Item?
  /// The encoded value. Nil if there is none, or it could not be encoded: then the key is removed from storage.
  var value: Data?
  /// What the value weighs in memory, whether or not it can be stored. Nil if it could not be encoded.
  var size: Int?
  /// Who waits for the change, which was assigned if that is nobody.
  var acknowledgement: CheckedContinuation<Void, any Error>?
  /// Why the change did not happen as it was meant.
  var failure: (any Error)?
  /// Whether storage may have changed although there is a failure.
  var mayHaveHappened = false
  /// Whether storage is up to date.
  var isStored = false
}

extension CacheState {
  /// All that waits, or nil if nothing does; then whoever adds to the queue starts the writing anew.
  mutating func takeQueue() -> [CacheWork<Item>]? {
    isWriting = !queue.isEmpty
    defer { queue = [] }
    return isWriting ? queue : nil
  }

  /// Begins to write a change. What is assigned to its key from now on is a change of its own.
  mutating func begin(_ work: CacheWork<Item>) -> CacheChange<Item>? {
    switch work {
    case .assignment(let key):
      guard let assignment = assigned[key] else { return nil }
      assigned[key]?.isQueued = false
      return CacheChange(key: key, item: assignment.item)
    case .change(let change):
      beginChanging(change.key)
      return change
    case .task: return nil
    }
  }

  /// Ends a change, with success or without.
  mutating func end(_ change: CacheChange<Item>) {
    let key = change.key
    if change.acknowledgement != nil {
      endChanging(key)
      guard change.failure == nil else {
        // The next read asks storage, unless what is in memory is still to be written.
        if change.mayHaveHappened && !unwritten.contains(key) { memory.remove(key) }
        return
      }
      unwritten.remove(key)
      // What was assigned meanwhile is newer.
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
