#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Changes in front of entries that they have not been made to: what a transaction sees.
///
/// Overlays can stand in front of each other, so that each transaction of a group sees those before it.
struct TransactionOverlay: EntryReader {
  private struct Change {
    /// The value, or nil if the key is absent.
    var data: Data?
    /// Whether the entry underneath, if there is one, is removed on the way, so that the key is new afterwards (rule W2).
    var isRenewed: Bool
    /// Orders the changes as the keys came to be, as far as they are new (rule R6).
    var order: Int
  }

  private let base: any EntryReader
  private var removesAll = false
  private var changes: [CacheKey: Change] = [:]
  private var sortedKeys = SortedKeys()
  private var lastOrder = 0

  init(on base: any EntryReader) { self.base = base }

  /// The changes as one batch: what there is underneath, changed by it, is what the overlay shows. O(n log n) for n keys.
  var operations: [StorageOperation] {
    var operations: [StorageOperation] = removesAll ? [.removeAll] : []
    for (key, change) in changes.sorted(by: { $0.value.order < $1.value.order }) {
      if change.isRenewed || change.data == nil { operations.append(.remove(key: key)) }
      if let data = change.data { operations.append(.write(data, key: key)) }
    }
    return operations
  }
}

// MARK: - Changing

extension TransactionOverlay {
  mutating func write(_ data: Data, key: CacheKey) {
    lastOrder += 1
    if var change = changes[key] {
      if change.data == nil { change.order = lastOrder }
      change.data = data
      changes[key] = change
    } else {
      changes[key] = Change(data: data, isRenewed: false, order: lastOrder)
      sortedKeys.insert(key)
    }
  }

  mutating func remove(_ key: CacheKey) {
    // Behind `removeAll` there is nothing to be removed.
    if changes.updateValue(Change(data: nil, isRenewed: !removesAll, order: lastOrder), forKey: key) == nil {
      sortedKeys.insert(key)
    }
  }

  mutating func removeAll() {
    removesAll = true
    changes = [:]
    sortedKeys = SortedKeys()
  }

  mutating func apply(_ operations: [StorageOperation]) {
    for operation in operations {
      switch operation {
      case .write(let data, let key): write(data, key: key)
      case .remove(let key): remove(key)
      case .removeAll: removeAll()
      }
    }
  }
}

// MARK: - Reading

extension TransactionOverlay {
  func data(of key: CacheKey) throws -> Data? {
    if let change = changes[key] { return change.data }
    return removesAll ? nil : try base.data(of: key)
  }

  func contains(_ key: CacheKey) throws -> Bool {
    if let change = changes[key] { return change.data != nil }
    return try !removesAll && base.contains(key)
  }

  /// Costs what counting underneath does, and a look there for each key that has been changed.
  func count() throws -> Int {
    var count = removesAll ? 0 : try base.count()
    for (key, change) in changes {
      let isThere = try !removesAll && base.contains(key)
      count += (change.data == nil ? 0 : 1) - (isThere ? 1 : 0)
    }
    return count
  }

  func forEachKey(from start: CacheKey, _ body: (CacheKey) throws -> Bool) throws {
    var written: [CacheKey] = []
    sortedKeys.forEach(from: start) { key in
      if changes[key]?.data != nil { written.append(key) }
      return true
    }
    var next = 0
    var goesOn = true
    if !removesAll {
      try base.forEachKey(from: start) { key in
        while goesOn, next < written.count, written[next] < key {
          goesOn = try body(written[next])
          next += 1
        }
        if goesOn, changes[key] == nil { goesOn = try body(key) }
        return goesOn
      }
    }
    while goesOn, next < written.count {
      goesOn = try body(written[next])
      next += 1
    }
  }
}
