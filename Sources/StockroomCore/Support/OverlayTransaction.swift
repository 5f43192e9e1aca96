#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The transaction that is passed to bodies: an overlay, which is valid while the body runs.
final class OverlayTransaction: BulkReadingTransaction {
  /// Nil once the body has returned (rule T4). Protected by a lock, since a body may pass the transaction to another thread.
  private let overlay: MutexProtected<TransactionOverlay?>
  private let valueLimit: ValueLimit?

  init(on base: some EntryReader, _ valueLimit: ValueLimit?) {
    overlay = MutexProtected(TransactionOverlay(on: base))
    self.valueLimit = valueLimit
  }

  /// Ends the transaction. Returns its changes.
  func end() -> (operations: [StorageOperation], times: [EntryTimes?]) {
    overlay.withLock { $0.take()?.changes } ?? ([], [])
  }

  func read(key: CacheKey) throws -> Data? {
    try key.validate()
    return try withOverlay { try $0.data(of: key) }
  }

  func read(keys: [CacheKey]) throws -> [Data] { try readValues(of: keys).compactMap(\.self) }

  func readValues(of keys: [CacheKey]) throws -> [Data?] {
    try keys.validate()
    return try withOverlay { try $0.data(of: keys) }
  }

  func keyExists(_ key: CacheKey) throws -> Bool {
    try key.validate()
    return try withOverlay { try $0.contains(key) }
  }

  func keyCount() throws -> Int { try withOverlay { try $0.count() } }

  func allKeys() throws -> [CacheKey] {
    try withOverlay { overlay in
      var keys: [CacheKey] = []
      try overlay.forEachKey(from: CacheKey(verbatim: "")) { key in
        keys.append(key)
        return true
      }
      return keys
    }
  }

  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    let limit = max(0, limit ?? .max)
    let cursor = KeyRangeCursor(range)
    return try withOverlay { overlay in
      var found: [(key: CacheKey, data: Data)] = []
      if limit == 0 { return found }
      let changed = overlay
      let start = CacheKey(verbatim: String(decoding: cursor.start, as: UTF8.self))
      try overlay.forEachKeyRememberingChanged(from: start) { key in
        switch cursor.position(of: key) {
        case .before: return true
        case .behind: return false
        case .inside:
          // If entries are files, another program may have removed the file since it was listed.
          if let data = try changed.data(of: key) { found.append((key, data)) }
          return found.count < limit
        }
      }
      return found
    }
  }

  func write(_ data: Data, key: CacheKey) throws { try write(data, key: key, nil) }

  func writeEntry(_ entry: StorageEntry) throws {
    try write(entry.data, key: entry.key, EntryTimes(entry))
  }

  private func write(_ data: Data, key: CacheKey, _ times: EntryTimes?) throws {
    try key.validate()
    try valueLimit?.check(data, key)
    try withOverlay { $0.write(data, key: key, times) }
  }

  func remove(key: CacheKey) throws {
    try key.validate()
    try withOverlay { $0.remove(key) }
  }

  func removeAll() throws { try withOverlay { $0.removeAll() } }

  private func withOverlay<Result>(_ body: (inout TransactionOverlay) throws -> Result) throws -> Result {
    try overlay.withLock { overlay in
      // Moved out and back, so that changing it copies nothing.
      guard var current = overlay.take() else {
        throw StorageError(.closed, "The transaction is over: it cannot be used once its body has returned.")
      }
      defer { overlay = current }
      return try body(&current)
    }
  }
}
