#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Default implementations for an engine that implements only the six required methods.
extension StorageEngine {
  /// Nothing beyond the rules that hold for all engines.
  public var capabilities: EngineCapabilities { [] }

  /// Writes one by one, after validating every key.
  public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys { try key.validate() }
    try await shieldedFromCancellation {
      for (key, data) in dataAndKeys { try await write(data, key: key) }
    }
  }

  /// One read for each key.
  public func read(keys: [CacheKey]) async throws -> [Data] {
    try keys.validate()
    var values: [Data] = []
    values.reserveCapacity(keys.count)
    var timer = YieldTimer()
    for key in keys {
      try await timer.yieldIfDue()
      if let data = try await read(key: key) { values.append(data) }
    }
    return values
  }

  /// One read for each key.
  public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try keys.validate()
    var entries: [(key: CacheKey, data: Data)] = []
    entries.reserveCapacity(keys.count)
    var timer = YieldTimer()
    for key in keys {
      try await timer.yieldIfDue()
      if let data = try await read(key: key) { entries.append((key, data)) }
    }
    return entries
  }

  /// One read for each of ``allKeys()``.
  public func readAllData() async throws -> [Data] {
    try await read(keys: allKeys())
  }

  /// One read for each of ``allKeys()``.
  public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await readDataAndKeys(keys: allKeys())
  }

  /// Removes one by one, after validating every key.
  public func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    try await shieldedFromCancellation {
      for key in keys { try await remove(key: key) }
    }
  }

  /// Removes each of ``allKeys()``.
  public func removeAllData() async throws {
    try await remove(keys: allKeys())
  }

  /// Whether ``createdAt(key:)`` is not nil.
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try await createdAt(key: key) != nil
  }

  /// One call of ``keyExists(_:)`` for each key, so the keys are not checked in one snapshot.
  public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try keys.validate()
    var existing: [CacheKey] = []
    existing.reserveCapacity(keys.count)
    var timer = YieldTimer()
    for key in keys {
      try await timer.yieldIfDue()
      if try await keyExists(key) { existing.append(key) }
    }
    return existing
  }

  /// Counts ``allKeys()``.
  public func keyCount() async throws -> Int {
    try await allKeys().count
  }

  /// Reads each entry and its timestamps; O(N log N) to sort them.
  ///
  /// - Throws: ``StorageError`` with code `corrupted` if a key has a value and no timestamps, so that the entry is not silently
  ///   left out (rule R4).
  public func readAllEntries() async throws -> [StorageEntry] {
    try await entries(of: readAllDataAndKeys())
  }

  /// Reads each entry and its timestamps; O(K log K) for K keys to sort them. Throws as ``readAllEntries()``.
  public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await entries(of: readDataAndKeys(keys: Array(Set(keys))))
  }

  private func entries(of dataAndKeys: [(key: CacheKey, data: Data)]) async throws -> [StorageEntry] {
    var entries: [StorageEntry] = []
    var timer = YieldTimer()
    for (key, data) in dataAndKeys {
      try await timer.yieldIfDue()
      if let entry = try await entry(of: key, data) { entries.append(entry) }
    }
    return entries.sorted { ($0.createdAt, $0.key) < ($1.createdAt, $1.key) }
  }

  /// The entry of a key whose value has just been read, or nil if the key has been removed since.
  private func entry(of key: CacheKey, _ data: Data) async throws -> StorageEntry? {
    var data = data
    // Another attempt means that the key was removed and written again between the reads. Thirty in a row only occur if the engine
    // never returns timestamps for the key.
    for _ in 0..<30 {
      if let createdAt = try await createdAt(key: key), let updatedAt = try await updatedAt(key: key) {
        return StorageEntry(key: key, data: data, createdAt: createdAt, updatedAt: updatedAt)
      }
      guard let again = try await read(key: key) else { return nil }
      data = again
    }
    throw StorageError(.corrupted, "The key \(key.value.debugDescription) has a value, but no timestamps.")
  }

  /// Writes the values as one batch, with the times of this call.
  public func writeEntries(_ entries: [StorageEntry]) async throws {
    try await write(entries.map { ($0.key, $0.data) })
  }

  /// Performs a single operation with the method of its kind, several writes with ``write(_:)``, several removals with
  /// ``remove(keys:)``, and all other batches one by one, after validating every key.
  ///
  /// An engine whose ``write(_:)`` or ``remove(keys:)`` calls ``apply(_:)`` must implement ``apply(_:)`` itself.
  public func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    guard operations.count > 1 else {
      for operation in operations { try await perform(operation) }
      return
    }
    let writes: [(key: CacheKey, data: Data)] = operations.compactMap {
      if case .write(let data, let key) = $0 { (key, data) } else { nil }
    }
    if writes.count == operations.count { return try await write(writes) }
    let removals: [CacheKey] = operations.compactMap { if case .remove(let key) = $0 { key } else { nil } }
    if removals.count == operations.count { return try await remove(keys: removals) }
    try await shieldedFromCancellation {
      for operation in operations { try await perform(operation) }
    }
  }

  private func perform(_ operation: StorageOperation) async throws {
    switch operation {
    case .write(let data, let key): try await write(data, key: key)
    case .remove(let key): try await remove(key: key)
    case .removeAll: try await removeAllData()
    }
  }

  /// Filters and sorts ``allKeys()``, O(N log N), then reads the values one by one, up to the limit.
  public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    let limit = max(0, limit ?? .max)
    guard limit > 0 else { return [] }
    let cursor = KeyRangeCursor(range)
    let keys = try await allKeys().filter { cursor.position(of: $0) == .inside }.sorted()
    var entries: [(key: CacheKey, data: Data)] = []
    entries.reserveCapacity(min(limit, keys.count))
    var timer = YieldTimer()
    for key in keys {
      try await timer.yieldIfDue()
      if let data = try await read(key: key) { entries.append((key, data)) }
      if entries.count == limit { break }
    }
    return entries
  }

  /// Throws `unsupported`.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    throw StorageError(.unsupported, "A \(type(of: self)) has no transactions.")
  }

  /// Throws `unsupported`.
  public func changes() async throws -> StorageChanges {
    throw StorageError(.unsupported, "A \(type(of: self)) has no change feed.")
  }

  /// Reads every entry.
  public func verify() async throws {
    _ = try await readAllEntries()
  }

  /// Does nothing.
  public func close() async throws {}
}

extension StorageEngine {
  /// Runs a batch of several steps in a separate task, which is not cancelled together with the caller's: a cancelled call does
  /// all of its work or none (rule C4).
  private func shieldedFromCancellation(_ batch: @escaping @Sendable () async throws -> Void) async throws {
    try Task.checkCancellation()
    try await Task { try await batch() }.value
  }
}
