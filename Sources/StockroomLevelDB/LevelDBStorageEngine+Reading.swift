import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// LevelDB searches for a key in at most one table of each level, except the first level, whose few tables overlap. A
// filter excludes almost all tables that do not contain the key, so the cost for one key hardly depends on N. LevelDB
// reads a value as a whole, even if only its timestamps are needed.
extension LevelDBStorageEngine {
  /// The value of the key, or nil. O(log N).
  public func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return try await reading(.fewKeys) { try $0.value(of: key) }
  }

  /// The values of the keys that exist, from one snapshot. O(n log N) for n keys.
  public func read(keys: [CacheKey]) async throws -> [Data] {
    try await collect(keys) { handle, key, snapshot in try handle.value(of: key, in: snapshot) }
  }

  /// The keys that exist with their values, from one snapshot. O(n log N) for n keys.
  public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await collect(keys) { handle, key, snapshot in
      try handle.value(of: key, in: snapshot).map { (key, $0) }
    }
  }

  /// Every value, from one snapshot. O(N): reads the whole database.
  @concurrent public func readAllData() async throws -> [Data] {
    try await collectAll { handle, _, stored in try LevelDBEncoding.value(stored, path: handle.path) }
  }

  /// Every key with its value, from one snapshot. O(N): reads the whole database.
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await collectAll { handle, key, stored in try handle.entry(key, stored) }
  }

  /// Every key, from one snapshot. O(N): reads the whole database, including values.
  @concurrent public func allKeys() async throws -> [CacheKey] {
    try await collectAll { handle, key, _ in try LevelDBEncoding.key(key, path: handle.path) }
  }

  /// Every entry, from one snapshot, in the order in which the keys were first written. O(N log N): reads the whole database.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try await collectAll { handle, key, stored in
      try handle.wholeEntry(LevelDBEncoding.key(key, path: handle.path), stored)
    }.sortedByCreation()
  }

  /// The entries of the keys that exist, from one snapshot, in the order in which they were first written. O(n log N + n log n) for n
  /// keys.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await collect(Array(Set(keys))) { handle, key, snapshot in
      try key.withUTF8 { try handle.read($0, in: snapshot) { try handle.wholeEntry(key, $0) } }
    }.sortedByCreation()
  }

  /// The entries of the range in byte order of keys, from one snapshot. O(log N + n) for n entries returned.
  @concurrent public func scan(
    _ range: KeyRange, limit: Int?
  ) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    let limit = max(0, limit ?? .max)
    let cursor = KeyRangeCursor(range)
    return try await reading(limit > Self.mostEntriesOfPage ? .eachFile : .once) { handle in
      var entries: [(key: CacheKey, data: Data)] = []
      if limit == 0 { return entries }
      var timer = YieldTimer()
      try await handle.forEachEntry(from: cursor.start, fillingCache: true, yieldingTo: &timer) {
        key, stored in
        try cursor.collect(key, into: &entries, limit: limit) { try handle.entry(key, stored) }
      }
      return entries
    }
  }

  /// Whether there is an entry under the key. O(log N), and reads its value.
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try key.validate()
    return try await reading(.fewKeys) { try $0.header(of: key) != nil }
  }

  /// The existing keys among these, from one snapshot. O(n log N) for n keys, whose values are read.
  public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await collect(keys) { handle, key, snapshot in
      try handle.header(of: key, in: snapshot) == nil ? nil : key
    }
  }

  /// The number of entries, which is written with every batch. Costs the same as one read, regardless of N.
  public func keyCount() async throws -> Int {
    try await reading(.fewKeys) { Int(clamping: try $0.metadata()?.count ?? 0) }
  }

  /// When the key went from absent to present, or nil. O(log N), and reads its value.
  public func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try await reading(.fewKeys) { try $0.header(of: key)?.createdAt.date }
  }

  /// When the key was last written, or nil. O(log N), and reads its value.
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try await reading(.fewKeys) { try $0.header(of: key)?.updatedAt.date }
  }
}

extension LevelDBStorageEngine {
  /// Reads and checks the manifest and all tables, with their checksums (rule F2), and compares the number of entries
  /// with the one that the engine has recorded.
  ///
  /// Costs reading the whole database.
  ///
  /// - Throws: `StorageError` with code `corrupted` if something is corrupted.
  @concurrent public func verify() async throws {
    try await reading(.eachFileToItsEnd) { handle in
      var timer = YieldTimer()
      try await timer.start()
      var count: UInt64 = 0
      var greatest: UInt64 = 0
      var metadata = LevelDBMetadata()
      // The metadata are the last record, from the same snapshot as the others.
      try await handle.forEachRecord(from: [], yieldingTo: &timer) { key, stored in
        if key.first == LevelDBMetadata.firstByte {
          metadata = try LevelDBMetadata(decoding: stored, path: handle.path)
          return false
        }
        _ = try LevelDBEncoding.key(key, path: handle.path)
        greatest = max(greatest, try LevelDBEncoding.header(stored, path: handle.path).sequence)
        count += 1
        return true
      }
      guard count == metadata.count, count == 0 || greatest < metadata.nextSequence else {
        throw StorageError(
          .corrupted,
          "The LevelDB database in \(handle.path) has \(count) entries, while its metadata counts \(metadata.count)."
        )
      }
    }
  }
}

extension LevelDBStorageEngine {
  /// The maximum number of keys that are read on the caller's actor.
  private static let mostKeysInline = 8
  /// The maximum number of entries that a scan reads without first checking each file.
  private static let mostEntriesOfPage = 1000

  private func reading<Value>(
    _ check: LevelDBConnection.Check, _ body: (LevelDBHandle) async throws -> Value
  ) async throws -> Value {
    try gate.enter()
    defer { gate.leave() }
    return try await connection.read(check, on: thread, body)
  }

  /// The results of `read` for all keys, from one snapshot.
  private func collect<Value: Sendable>(
    _ keys: [CacheKey],
    _ read: @Sendable (LevelDBHandle, CacheKey, LevelDBSnapshot) throws -> Value?
  ) async throws -> [Value] {
    guard keys.count <= Self.mostKeysInline else { return try await collectElsewhere(keys, read) }
    try keys.validate()
    return try await reading(.fewKeys) { handle in
      let snapshot = handle.snapshot()
      return try keys.compactMap { try read(handle, $0, snapshot) }
    }
  }

  @concurrent private func collectElsewhere<Value: Sendable>(
    _ keys: [CacheKey],
    _ read: @Sendable (LevelDBHandle, CacheKey, LevelDBSnapshot) throws -> Value?
  ) async throws -> [Value] {
    try keys.validate()
    return try await reading(.once) { handle in
      let snapshot = handle.snapshot()
      var timer = YieldTimer()
      return try await keys.compactMap(yieldingTo: &timer, every: 64) { try read(handle, $0, snapshot) }
    }
  }

  /// The results of `read` for all entries, from one snapshot, in the order of keys.
  private func collectAll<Value>(
    _ read: (LevelDBHandle, UnsafeRawBufferPointer, UnsafeRawBufferPointer) throws -> Value
  ) async throws -> [Value] {
    try await reading(.eachFile) { handle in
      var timer = YieldTimer()
      try await timer.start()
      var values: [Value] = []
      // The number is not verified, so it reserves only a limited amount of memory.
      values.reserveCapacity(Int(min(try handle.metadata()?.count ?? 0, 1 << 20)))
      try await handle.forEachEntry(yieldingTo: &timer) { key, stored in
        values.append(try read(handle, key, stored))
        return true
      }
      return values
    }
  }
}

extension LevelDBHandle {
  func value(of key: CacheKey, in snapshot: LevelDBSnapshot? = nil) throws -> Data? {
    try key.withUTF8 { try read($0, in: snapshot) { try LevelDBEncoding.value($0, path: path) } }
  }

  func header(of key: CacheKey, in snapshot: LevelDBSnapshot? = nil) throws -> EntryHeader? {
    try key.withUTF8 { try header(of: $0, in: snapshot) }
  }

  func header(of key: UnsafeRawBufferPointer, in snapshot: LevelDBSnapshot? = nil) throws -> EntryHeader? {
    try read(key, in: snapshot) { try LevelDBEncoding.header($0, path: path) }
  }

  func metadata() throws -> LevelDBMetadata? {
    try LevelDBMetadata.key.withUnsafeBytes { try read($0) { try LevelDBMetadata(decoding: $0, path: path) } }
  }

  /// Calls `body` with the entries at and after `start` in byte order of keys until it returns false. Call it
  /// on the engine's own thread.
  func forEachEntry(
    from start: [UInt8] = [],
    _ body: (_ key: UnsafeRawBufferPointer, _ stored: UnsafeRawBufferPointer) throws -> Bool
  ) throws {
    let iterator = iterator(from: start)
    while let (key, stored) = iterator.current, key.first != LevelDBMetadata.firstByte, try body(key, stored)
    {
      iterator.next()
    }
    try iterator.check()
  }

  /// Calls `body` with the entries at and after `start` in byte order of keys until it returns false, and
  /// yields to other tasks in between.
  func forEachEntry(
    from start: [UInt8] = [], fillingCache: Bool = false, yieldingTo timer: inout YieldTimer,
    _ body: (_ key: UnsafeRawBufferPointer, _ stored: UnsafeRawBufferPointer) throws -> Bool
  ) async throws {
    try await forEachRecord(from: start, fillingCache: fillingCache, yieldingTo: &timer) { key, stored in
      key.first == LevelDBMetadata.firstByte ? false : try body(key, stored)
    }
  }

  /// Like ``forEachEntry(from:fillingCache:yieldingTo:_:)``, for all records. The metadata are the last one.
  func forEachRecord(
    from start: [UInt8], fillingCache: Bool = false, yieldingTo timer: inout YieldTimer,
    _ body: (_ key: UnsafeRawBufferPointer, _ stored: UnsafeRawBufferPointer) throws -> Bool
  ) async throws {
    let iterator = iterator(from: start, fillingCache: fillingCache)
    // The cost of a portion: about the same for an entry as for a kilobyte.
    var cost = 0
    while let (key, stored) = iterator.current, try body(key, stored) {
      cost += 1 + stored.count >> 10
      iterator.next()
      if cost >= 64 {
        cost = 0
        try await timer.yieldIfDue()
      }
    }
    try iterator.check()
  }

  func wholeEntry(_ key: CacheKey, _ stored: UnsafeRawBufferPointer) throws -> StorageEntry {
    StorageEntry(
      key: key, data: try LevelDBEncoding.value(stored, path: path),
      header: try LevelDBEncoding.header(stored, path: path))
  }

  func entry(
    _ key: UnsafeRawBufferPointer, _ stored: UnsafeRawBufferPointer
  ) throws -> (key: CacheKey, data: Data) {
    (try LevelDBEncoding.key(key, path: path), try LevelDBEncoding.value(stored, path: path))
  }
}
