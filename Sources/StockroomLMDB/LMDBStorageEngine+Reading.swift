import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// Reads of up to eight keys run on the caller's actor, except `readEntries(keys:)`. Other reads run on other threads.

extension LMDBStorageEngine {
  /// The value of the key. O(log N).
  public func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return try await reading { try $0.entry(of: key)?.data }
  }

  /// Whether the key exists. O(log N), regardless of the size of the value.
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try key.validate()
    return try await reading { try $0.entry(of: key) != nil }
  }

  /// When the key was first written. O(log N), regardless of the size of the value.
  public func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try await reading { try $0.entry(of: key)?.header().createdAt.date }
  }

  /// When the key was last written. O(log N), regardless of the size of the value.
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try await reading { try $0.entry(of: key)?.header().updatedAt.date }
  }

  /// The number of entries. O(1).
  public func keyCount() async throws -> Int {
    try await reading { $0.count }
  }

  /// The values of the keys that exist, from one snapshot. O(n log N) for n keys.
  public func read(keys: [CacheKey]) async throws -> [Data] {
    try await readMany(keys) { _, entry in entry.data }
  }

  /// The keys that exist with their values, from one snapshot. O(n log N) for n keys.
  public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await readMany(keys) { key, entry in (key, entry.data) }
  }

  /// The existing keys among these, from one snapshot. O(n log N) for n keys, regardless of the size of the
  /// values.
  public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await readMany(keys) { key, _ in key }
  }

  /// Every value, from one snapshot. O(N).
  @concurrent public func readAllData() async throws -> [Data] {
    try await readAll { _, entry in entry.data }
  }

  /// Every key with its value, from one snapshot. O(N).
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await readAll { key, entry in (try CacheKey(stored: key), entry.data) }
  }

  /// Every key, from one snapshot. O(N).
  @concurrent public func allKeys() async throws -> [CacheKey] {
    try await readAll { key, _ in try CacheKey(stored: key) }
  }

  /// Every entry, from one snapshot, in the order in which the keys were first written. O(N log N).
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try await readAll { key, entry in
      StorageEntry(key: try CacheKey(stored: key), data: entry.data, header: try entry.header())
    }.sortedByCreation()
  }

  /// The entries of the keys that exist, from one snapshot, in the order in which they were first written. O(n log N +
  /// n log n) for n keys.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await readMany(Array(Set(keys))) { key, entry in
      StorageEntry(key: key, data: entry.data, header: try entry.header())
    }.sortedByCreation()
  }

  /// The entries of the range in byte order of keys, from one snapshot. O(log N + n) for n entries returned.
  @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    let limit = max(0, limit ?? .max)
    let cursor = KeyRangeCursor(range)
    return try await readingLong { snapshot, timer in
      var found: [(key: CacheKey, data: Data)] = []
      if limit == 0 { return found }
      try await snapshot.forEach(from: cursor.start, timer: &timer) { key, entry in
        try cursor.collect(key, into: &found, limit: limit) { (try CacheKey(stored: key), entry.data) }
      }
      return found
    }
  }

  /// Reads every page of the database's trees from one snapshot, and checks that LMDB can have written it: that every
  /// entry can be found, that keys are in order and counted correctly, and that no page has two uses. O(N), on a
  /// separate thread. Writes continue in the meantime.
  ///
  /// Of a large value, only the header is read. The contents of values are not checked: LMDB has no checksums.
  ///
  /// - Throws: `StorageError` with code `corrupted` if the database is corrupted, `closed` or `io`;
  ///   `CancellationError`.
  public func verify() async throws {
    try gate.enter()
    defer { gate.leave() }
    try await shared.verifyElsewhere()
  }
}

extension LMDBStorageEngine {
  /// Calls `body` with a snapshot.
  private func reading<Value>(_ body: (LMDBSnapshot) throws -> Value) async throws -> Value {
    try gate.enter()
    defer { gate.leave() }
    return try await shared.read(body)
  }

  /// Calls `body` with a snapshot that it may read for any length of time.
  private func readingLong<Value>(
    _ body: (LMDBSnapshot, inout YieldTimer) async throws -> Value
  ) async throws -> Value {
    try gate.enter()
    defer { gate.leave() }
    // Yields before the snapshot is taken, so that it is the newest one.
    var timer = YieldTimer()
    try await timer.start()
    return try await shared.readLong { try await body($0.snapshot, &timer) }
  }

  /// Up to this many keys take less time than a change of threads.
  private static let fewKeys = 8

  private func readMany<Element: Sendable>(
    _ keys: [CacheKey], _ element: @Sendable (CacheKey, LMDBEntry) throws -> Element
  ) async throws -> [Element] {
    guard keys.count <= Self.fewKeys else { return try await readEach(of: keys, element) }
    try keys.validate()
    return try await reading { snapshot in
      try keys.compactMap { key in try snapshot.entry(of: key).map { try element(key, $0) } }
    }
  }

  @concurrent private func readEach<Element: Sendable>(
    of keys: [CacheKey], _ element: @Sendable (CacheKey, LMDBEntry) throws -> Element
  ) async throws -> [Element] {
    try keys.validate()
    return try await readingLong { snapshot, timer in
      var elements: [Element] = []
      elements.reserveCapacity(keys.count)
      var portion = LMDBPortion()
      for key in keys {
        if portion.isOver { try await timer.yieldIfDue() }
        let entry = try snapshot.entry(of: key)
        if let entry { elements.append(try element(key, entry)) }
        portion.add(entry)
      }
      return elements
    }
  }

  private func readAll<Element>(
    _ element: (UnsafeRawBufferPointer, LMDBEntry) throws -> Element
  ) async throws -> [Element] {
    try await readingLong { snapshot, timer in
      var elements: [Element] = []
      // The number may be corrupted, so it does not determine how much memory is reserved.
      elements.reserveCapacity(min(snapshot.count, 1 << 20))
      try await snapshot.forEach(timer: &timer) { key, entry in
        elements.append(try element(key, entry))
        return true
      }
      return elements
    }
  }
}
