import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension SQLiteStorageEngine {
  /// O(log N).
  public func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return try await database.read { try $0.value(of: key) }
  }

  /// O(K log N) for K keys.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try keys.validate()
    return try await database.read { reader in
      try reader.compactMap(keys) { key in try reader.value(of: key) }
    }
  }

  /// O(K log N) for K keys.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try keys.validate()
    return try await database.read { reader in
      try reader.compactMap(keys) { key in try reader.value(of: key).map { (key, $0) } }
    }
  }

  /// O(N).
  @concurrent public func readAllData() async throws -> [Data] {
    try await database.read { try $0.rows(of: .allValues) { try $0.value(at: 0) } }
  }

  /// O(N).
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await database.read { reader in
      try reader.rows(of: .allKeysAndValues) { (try $0.key(at: 0), try $0.value(at: 1)) }
    }
  }

  /// O(N log N): the entries are sorted by when their keys were first written.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    var entries = try await database.read { reader in
      try reader.rows(of: .allEntries) { row in
        let entry = StorageEntry(
          key: try row.key(at: 0), data: try row.value(at: 1), createdAt: row.date(at: 2),
          updatedAt: row.date(at: 3))
        return (sequence: row.number(at: 4), entry: entry)
      }
    }
    entries.sort { $0.sequence < $1.sequence }
    return entries.map(\.entry)
  }

  /// O(log N + R) for R entries returned.
  @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    return try await database.read { try $0.scan(KeyRangeCursor(range), limit: max(0, limit ?? .max)) }
  }

  /// O(log N).
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try key.validate()
    return try await database.read { try $0.exists(key) }
  }

  /// O(K log N) for K keys.
  @concurrent public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try keys.validate()
    return try await database.read { reader in
      try reader.compactMap(keys) { key in try reader.exists(key) ? key : nil }
    }
  }

  /// O(N).
  @concurrent public func keyCount() async throws -> Int {
    try await database.read { reader in
      try reader.rows(of: .count) { Int($0.number(at: 0)) }.first ?? 0
    }
  }

  /// O(N).
  @concurrent public func allKeys() async throws -> [CacheKey] {
    try await database.read { try $0.rows(of: .allKeys) { try $0.key(at: 0) } }
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

extension SQLiteConnection {
  /// How many entries are read before a look whether the task has been cancelled.
  private static let cancellationInterval = 1024

  fileprivate func value(of key: CacheKey) throws -> Data? {
    try first(.value, key) { try $0.value(at: 0) }
  }

  fileprivate func exists(_ key: CacheKey) throws -> Bool {
    try first(.exists, key) { _ in true } ?? false
  }

  fileprivate func times(of key: CacheKey) throws -> (createdAt: Date, updatedAt: Date)? {
    try first(.times, key) { ($0.date(at: 0), $0.date(at: 1)) }
  }

  /// What `body` makes of the row of a key, or nil if there is none.
  private func first<Result>(
    _ query: SQLiteQuery, _ key: CacheKey, _ body: (SQLiteStatement) throws -> Result
  ) throws -> Result? {
    try key.withUTF8 { key in
      try run(query) { statement in
        try statement.bind(key, at: 1)
        return try statement.step() ? try body(statement) : nil
      }
    }
  }

  /// What `body` makes of each key, without the nils, at one moment.
  fileprivate func compactMap<Result>(
    _ keys: [CacheKey], _ body: (CacheKey) throws -> Result?
  ) throws -> [Result] {
    try transaction(.beginReading) {
      var results: [Result] = []
      results.reserveCapacity(keys.count)
      for (index, key) in keys.enumerated() {
        if index.isMultiple(of: Self.cancellationInterval) { try Task.checkCancellation() }
        if let result = try body(key) { results.append(result) }
      }
      return results
    }
  }

  /// What `body` makes of each row.
  fileprivate func rows<Row>(of query: SQLiteQuery, _ body: (SQLiteStatement) throws -> Row) throws -> [Row] {
    try run(query) { statement in
      var rows: [Row] = []
      while try statement.step() {
        if rows.count.isMultiple(of: Self.cancellationInterval) { try Task.checkCancellation() }
        rows.append(try body(statement))
      }
      return rows
    }
  }

  fileprivate func scan(_ cursor: KeyRangeCursor, limit: Int) throws -> [(key: CacheKey, data: Data)] {
    try run(.keysAndValuesFrom) { statement in
      var found: [(key: CacheKey, data: Data)] = []
      try cursor.start.withUnsafeBytes { try statement.bind($0, at: 1) }
      while found.count < limit, try statement.step() {
        if found.count.isMultiple(of: Self.cancellationInterval) { try Task.checkCancellation() }
        switch cursor.position(of: try statement.bytes(at: 0)) {
        case .before: continue
        case .behind: return found
        case .inside: found.append((try statement.key(at: 0), try statement.value(at: 1)))
        }
      }
      return found
    }
  }
}
