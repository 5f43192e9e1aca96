#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Changes in front of entries to which they have not been applied yet: the view of a transaction.
///
/// Overlays can be stacked, so that each transaction of a group sees the earlier ones.
struct TransactionOverlay: EntryReader {
  private let base: any EntryReader
  private var merged = MergedOperations()
  /// The keys that have been written and not removed since.
  private var writtenKeys = SortedKeys()
  /// The range in which all underlying keys have been changed, so that they are not searched again.
  private var changedRange: (start: CacheKey, end: CacheKey)?

  init(on base: any EntryReader) { self.base = base }

  /// The changes as one batch. Applied to the underlying entries, they result in the entries that the overlay shows. O(n log n)
  /// for n keys.
  ///
  /// The timestamps have the format of ``WriteRequest/times``.
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
    // Copied, since a slice would be returned as a slice (rule V3), and the bytes may belong to the caller, which may change them
    // once this has returned.
    merged.write(data.withUnsafeBytes { Data($0) }, key: key, times: times)
    writtenKeys.insert(key)
  }

  mutating func remove(_ key: CacheKey) {
    merged.remove(key)
    writtenKeys.remove(key)
  }

  mutating func removeAll() {
    merged.removeAll()
    writtenKeys = SortedKeys()
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

  /// Reads all unchanged keys at once.
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

  /// Costs the same as counting the underlying entries, and one check there for each changed key.
  func count() throws -> Int {
    let written = merged.changes.values.count { $0.data != nil }
    if merged.removesAll { return written }
    return try base.count() - base.count(of: Array(merged.changes.keys)) + written
  }

  func forEachKey(from start: CacheKey, _ body: (CacheKey) throws -> Bool) throws {
    _ = try walk(from: start, body)
  }

  /// Like ``forEachKey(from:_:)``. The next call does not search underlying keys again that are known to have been changed: a
  /// body that repeatedly takes the first entry and removes it pays only for the entries that it takes.
  mutating func forEachKeyRememberingChanged(
    from start: CacheKey, _ body: (CacheKey) throws -> Bool
  ) throws {
    guard let reached = try walk(from: start, body) else { return }
    changedRange = (known(from: start)?.start ?? start, reached)
  }

  /// The range in which all underlying keys have been changed, if it contains the key.
  private func known(from key: CacheKey) -> (start: CacheKey, end: CacheKey)? {
    changedRange.flatMap { $0.start <= key && key <= $0.end ? $0 : nil }
  }

  /// Returns a key up to which all underlying keys have been changed. Nil if there are none.
  private func walk(from start: CacheKey, _ body: (CacheKey) throws -> Bool) throws -> CacheKey? {
    var written = SortedKeyCursor(through: writtenKeys, from: start)
    var reached: CacheKey?
    var hasFoundUnchanged = false
    var goesOn = true
    if !merged.removesAll {
      try base.forEachKey(from: known(from: start)?.end ?? start) { key in
        if !hasFoundUnchanged { reached = key }
        while goesOn, let next = written.key, next < key {
          goesOn = try body(next)
          written.advance()
        }
        if goesOn, merged.changes[key] == nil {
          hasFoundUnchanged = true
          goesOn = try body(key)
        }
        return goesOn
      }
    }
    while goesOn, let next = written.key {
      goesOn = try body(next)
      written.advance()
    }
    return reached
  }
}
