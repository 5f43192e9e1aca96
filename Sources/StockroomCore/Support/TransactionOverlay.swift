#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Changes in front of entries that they have not been made to: what a transaction sees.
///
/// Overlays can stand in front of each other, so that each transaction of a group sees those before it.
struct TransactionOverlay: EntryReader {
  private let base: any EntryReader
  private var merged = MergedOperations()
  private var sortedKeys = SortedKeys()

  init(on base: any EntryReader) { self.base = base }

  /// The changes as one batch: what there is underneath, changed by it, is what the overlay shows. O(n log n) for n keys.
  ///
  /// The times are as ``WriteRequest/times`` has them.
  var changes: (operations: [StorageOperation], times: [EntryTimes?]) {
    var operations: [StorageOperation] = merged.removesAll ? [.removeAll] : []
    var times: [EntryTimes?] = merged.removesAll ? [nil] : []
    for (key, change) in merged.inOrder {
      if change.isRenewed || change.data == nil {
        operations.append(.remove(key: key))
        times.append(nil)
      }
      if let data = change.data {
        operations.append(.write(data, key: key))
        times.append(change.times)
      }
    }
    return (operations, times.contains { $0 != nil } ? times : [])
  }
}

// MARK: - Changing

extension TransactionOverlay {
  mutating func write(_ data: Data, key: CacheKey, _ times: EntryTimes? = nil) {
    // A slice would be read back as one (rule V3).
    let value = data.startIndex == 0 ? data : data.withUnsafeBytes { Data($0) }
    if merged.write(value, key: key, times: times) { sortedKeys.insert(key) }
  }

  mutating func remove(_ key: CacheKey) {
    if merged.remove(key) { sortedKeys.insert(key) }
  }

  mutating func removeAll() {
    merged.removeAll()
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
    if let change = merged.changes[key] { return change.data }
    return merged.removesAll ? nil : try base.data(of: key)
  }

  /// Asks for all that have not been changed at once.
  func data(of keys: [CacheKey]) throws -> [Data?] {
    if merged.changes.isEmpty, !merged.removesAll { return try base.data(of: keys) }
    var found = keys.map { merged.changes[$0]?.data }
    if merged.removesAll { return found }
    let unchanged = keys.indices.filter { merged.changes[keys[$0]] == nil }
    for (index, data) in zip(unchanged, try base.data(of: unchanged.map { keys[$0] })) { found[index] = data }
    return found
  }

  func contains(_ key: CacheKey) throws -> Bool {
    if let change = merged.changes[key] { return change.data != nil }
    return try !merged.removesAll && base.contains(key)
  }

  func count(of keys: [CacheKey]) throws -> Int {
    let written = keys.count { merged.changes[$0]?.data != nil }
    if merged.removesAll { return written }
    return try written + base.count(of: keys.filter { merged.changes[$0] == nil })
  }

  /// Costs what counting underneath does, and a look there for each key that has been changed.
  func count() throws -> Int {
    let written = merged.changes.values.count { $0.data != nil }
    if merged.removesAll { return written }
    return try base.count() - base.count(of: Array(merged.changes.keys)) + written
  }

  func forEachKey(from start: CacheKey, _ body: (CacheKey) throws -> Bool) throws {
    var written: [CacheKey] = []
    sortedKeys.forEach(from: start) { key in
      if merged.changes[key]?.data != nil { written.append(key) }
      return true
    }
    var next = 0
    var goesOn = true
    if !merged.removesAll {
      try base.forEachKey(from: start) { key in
        while goesOn, next < written.count, written[next] < key {
          goesOn = try body(written[next])
          next += 1
        }
        if goesOn, merged.changes[key] == nil { goesOn = try body(key) }
        return goesOn
      }
    }
    while goesOn, next < written.count {
      goesOn = try body(written[next])
      next += 1
    }
  }
}
