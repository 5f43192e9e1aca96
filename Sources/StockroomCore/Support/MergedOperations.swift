#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The result of operations that are applied one after another: at most one change for each key.
package struct MergedOperations {
  package struct Change {
    /// The value, or nil if the key is absent.
    package fileprivate(set) var data: Data?
    /// The timestamps of the entry; nil if the entry is written with the time of the commit.
    package fileprivate(set) var times: EntryTimes?
    /// Whether an existing entry is removed before the write, so that the key is new afterwards (rule W2).
    package fileprivate(set) var isRenewed: Bool
    /// Orders the changes by the creation of their keys, as far as these are new (rule R6).
    fileprivate var order: Int
  }

  /// Whether everything is removed before the changes are made.
  package private(set) var removesAll = false
  package private(set) var changes: [CacheKey: Change] = [:]
  private var lastOrder = 0

  package init() {}

  /// The changes in the order in which new keys are created. O(n log n) for n keys.
  package var inOrder: [(key: CacheKey, value: Change)] { changes.sorted { $0.value.order < $1.value.order } }

  /// Returns whether this is the first change of the key.
  @discardableResult package mutating func write(
    _ data: Data, key: CacheKey, times: EntryTimes? = nil
  ) -> Bool {
    lastOrder += 1
    if var change = changes[key] {
      if change.data == nil { change.order = lastOrder }
      change.data = data
      change.times = times ?? change.times?.overwritten
      changes[key] = change
      return false
    }
    changes[key] = Change(data: data, times: times, isRenewed: false, order: lastOrder)
    return true
  }

  /// Returns whether this is the first change of the key.
  @discardableResult package mutating func remove(_ key: CacheKey) -> Bool {
    // After `removeAll` there is nothing to remove.
    changes.updateValue(Change(data: nil, isRenewed: !removesAll, order: lastOrder), forKey: key) == nil
  }

  package mutating func removeAll() {
    removesAll = true
    changes = [:]
  }
}
