import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Reads of up to this many keys do not wait for longer ones.
private let mostKeysAtOnce = 8
/// Scans for up to this many entries do not wait for longer reads.
private let mostEntriesAtOnce = 1_000

extension SQLiteStorageEngine {
  /// O(log N).
  public func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return try await database.read { try $0.value(of: key) }
  }

  /// O(K log N) for K keys.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try keys.validate()
    return try await database.readMuch(isLong: keys.count > mostKeysAtOnce) { reader, timer in
      try await reader.compactMap(keys, &timer) { key in try reader.value(of: key) }
    }
  }

  /// O(K log N) for K keys.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try keys.validate()
    return try await database.readMuch(isLong: keys.count > mostKeysAtOnce) { reader, timer in
      try await reader.compactMap(keys, &timer) { key in try reader.value(of: key).map { (key, $0) } }
    }
  }

  /// O(N).
  @concurrent public func readAllData() async throws -> [Data] {
    try await database.readMuch { reader, timer in
      try await reader.rows(of: .allValues, &timer) { try $0.value(at: 0) }
    }
  }

  /// O(N).
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await database.readMuch { reader, timer in
      try await reader.rows(of: .allKeysAndValues, &timer) { (try $0.key(at: 0), try $0.value(at: 1)) }
    }
  }

  /// O(N log N): the entries are sorted in the order in which their keys were first written.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try await database.readMuch { reader, timer in
      try await reader.rows(of: .allEntries, &timer) { try $0.entry(of: $0.key(at: 0)) }
    }.sortedByCreation()
  }

  /// O(K log N) for K keys.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try keys.validate()
    return try await database.readMuch(isLong: keys.count > mostKeysAtOnce) { reader, timer in
      try await reader.compactMap(Array(Set(keys)), &timer) { key in
        try reader.entry(of: key)
      }
    }.sortedByCreation()
  }

  /// O(log N + R) for R entries returned.
  @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    return try await database.readMuch(isLong: (limit ?? .max) > mostEntriesAtOnce) { reader, timer in
      try await reader.scan(KeyRangeCursor(range), limit: max(0, limit ?? .max), &timer)
    }
  }

  /// O(log N).
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try key.validate()
    return try await database.read { try $0.exists(key) }
  }

  /// O(K log N) for K keys.
  @concurrent public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try keys.validate()
    return try await database.readMuch(isLong: keys.count > mostKeysAtOnce) { reader, timer in
      try await reader.compactMap(keys, &timer) { key in try reader.exists(key) ? key : nil }
    }
  }

  /// O(N).
  @concurrent public func keyCount() async throws -> Int {
    let count = try await database.readMuch(isLong: false) { reader, _ in try reader.countAtOnce() }
    if let count { return count }
    return try await database.readMuch { reader, timer in try await reader.count(&timer) }
  }

  /// O(N).
  @concurrent public func allKeys() async throws -> [CacheKey] {
    try await database.readMuch { reader, timer in
      try await reader.rows(of: .allKeys, &timer) { try $0.key(at: 0) }
    }
  }

  /// O(log N).
  public func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try await database.read { try $0.times(of: key)?.createdAt }
  }

  /// O(log N).
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try await database.read { try $0.times(of: key)?.updatedAt }
  }
}

extension SQLiteStatement {
  /// The entry in the current row of ``SQLiteQuery/allEntries`` or ``SQLiteQuery/entry``.
  fileprivate func entry(of key: CacheKey) throws -> StorageEntry {
    StorageEntry(
      key: key, data: try value(at: 1),
      header: EntryHeader(
        createdAt: Timestamp(nanoseconds: number(at: 2)), updatedAt: Timestamp(nanoseconds: number(at: 3)),
        sequence: UInt64(clamping: number(at: 4))))
  }
}

extension SQLiteConnection {
  /// The number of entries that are read between two checks of the clock.
  private static let portion = 16
  /// The maximum number of pages of a database whose entries are counted in one step, which takes a few
  /// milliseconds.
  private static let pagesCountedAtOnce = 8_192

  func value(of key: CacheKey) throws -> Data? {
    try first(.value, key) { try $0.value(at: 0) }
  }

  func entry(of key: CacheKey) throws -> StorageEntry? {
    try first(.entry, key) { try $0.entry(of: key) }
  }

  func exists(_ key: CacheKey) throws -> Bool {
    try first(.exists, key) { _ in true } ?? false
  }

  fileprivate func times(of key: CacheKey) throws -> (createdAt: Date, updatedAt: Date)? {
    try first(.times, key) { ($0.date(at: 0), $0.date(at: 1)) }
  }

  /// The result of `body` for the row of a key, or nil if there is none.
  fileprivate func first<Result>(
    _ query: SQLiteQuery, _ key: CacheKey, _ body: (SQLiteStatement) throws -> Result
  ) throws -> Result? {
    try key.withUTF8 { key in
      try run(query) { statement in
        try statement.bind(key, at: 1)
        return try statement.step() ? try body(statement) : nil
      }
    }
  }

  /// The results of `body` for all keys, without the nils, in one snapshot.
  fileprivate func compactMap<Result>(
    _ keys: [CacheKey], _ timer: inout YieldTimer, _ body: (CacheKey) throws -> Result?
  ) async throws -> [Result] {
    try await snapshot { try await keys.compactMap(yieldingTo: &timer, every: Self.portion, body) }
  }

  /// The results of `body` for all rows.
  fileprivate func rows<Row>(
    of query: SQLiteQuery, _ timer: inout YieldTimer, _ body: (SQLiteStatement) throws -> Row
  ) async throws -> [Row] {
    let statement = try statement(for: query)
    defer { statement.reset() }
    var rows: [Row] = []
    while try statement.step() {
      rows.append(try body(statement))
      if rows.count.isMultiple(of: Self.portion) { try await timer.yieldIfDue() }
    }
    return rows
  }

  /// The number of entries; nil if there are too many to count without yielding, which is about twice as fast as counting with
  /// it.
  fileprivate func countAtOnce() throws -> Int? {
    try number(.pageCount) <= Self.pagesCountedAtOnce ? number(.count) : nil
  }

  /// The number of entries, counted by stepping from one to the next.
  fileprivate func count(_ timer: inout YieldTimer) async throws -> Int {
    let statement = try statement(for: .eachKey)
    defer { statement.reset() }
    var count = 0
    while try statement.step() {
      count += 1
      if count.isMultiple(of: 64 * Self.portion) { try await timer.yieldIfDue() }
    }
    return count
  }

  fileprivate func scan(
    _ cursor: KeyRangeCursor, limit: Int, _ timer: inout YieldTimer
  ) async throws -> [(key: CacheKey, data: Data)] {
    let statement = try statement(for: .keysAndValuesFrom)
    defer { statement.reset() }
    var found: [(key: CacheKey, data: Data)] = []
    // SQLite makes a copy, since the bytes would not stay valid from one portion to the next.
    try cursor.start.withUnsafeBytes { try statement.bindCopy($0, at: 1) }
    while found.count < limit, try statement.step() {
      let goesOn = try cursor.collect(statement.bytes(at: 0), into: &found, limit: limit) {
        (try statement.key(at: 0), try statement.value(at: 1))
      }
      if !goesOn { break }
      if found.count.isMultiple(of: Self.portion) { try await timer.yieldIfDue() }
    }
    return found
  }
}
