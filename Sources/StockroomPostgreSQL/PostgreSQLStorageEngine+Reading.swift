import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension PostgreSQLStorageEngine {
  /// The value of the key, or nil. O(log N), in one round trip together with concurrent reads.
  public func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return try await read { try await $0.value(of: key) }
  }

  /// The values of the keys that exist, from one snapshot. O(K log N) for K keys.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try await rows(of: .values, keys) { result, keys in
      try result.positions(in: keys).compactMap { $0.map { result.data($0, 1) } }
    }
  }

  /// The keys that exist with their values, from one snapshot. O(K log N) for K keys.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await rows(of: .values, keys) { result, keys in
      try zip(keys, result.positions(in: keys)).compactMap { key, row in
        row.map { (key, result.data($0, 1)) }
      }
    }
  }

  /// Every value, from one snapshot. O(N).
  @concurrent public func readAllData() async throws -> [Data] {
    try await rows(of: .declareValues) { $0.data($1, 0) }
  }

  /// Every key with its value, from one snapshot. O(N).
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await rows(of: .declareKeysAndValues) { (try $0.key($1, 0), $0.data($1, 1)) }
  }

  /// Every entry, from one snapshot, in the order in which the keys were first written. O(N log N).
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try await rows(of: .declareEntries) { try $0.entry($1) }.sortedByCreation()
  }

  /// The entries of the keys that exist, from one snapshot, in the order in which they were first written. O(K log N +
  /// K log K) for K keys.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await rows(of: .entriesOfKeys, Array(Set(keys))) { result, _ in
      try (0..<result.rowCount).map { try result.entry($0) }
    }.sortedByCreation()
  }

  /// The entries of the range in byte order of keys, from one snapshot. O(log N + R) for R entries returned.
  @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    return try await read { readers in
      try await readers.read { try $0.scan(range, limit: limit, until: $1) }
    }
  }

  /// Whether the key exists. O(log N), in one round trip together with concurrent reads.
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try await times(of: key) != nil
  }

  /// The existing keys among these, from one snapshot. O(K log N) for K keys.
  @concurrent public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await rows(of: .existing, keys) { result, keys in
      try zip(keys, result.positions(in: keys)).compactMap { key, row in row.map { _ in key } }
    }
  }

  /// The number of entries. O(N).
  @concurrent public func keyCount() async throws -> Int {
    try await read { readers in
      try await readers.read { connection, deadline in
        let results = try connection.run([.init(.allowSequentialScans), .init(.count)], until: deadline)
        return try results.last.map { Int(try $0.number(0, 0)) } ?? 0
      }
    }
  }

  /// Every key, from one snapshot. O(N).
  @concurrent public func allKeys() async throws -> [CacheKey] {
    try await rows(of: .declareKeys) { try $0.key($1, 0) }
  }

  /// When the key was first written, or nil. O(log N), in one round trip together with concurrent reads.
  public func createdAt(key: CacheKey) async throws -> Date? {
    try await times(of: key)?.createdAt.date
  }

  /// When the key was last written, or nil. O(log N), in one round trip together with concurrent reads.
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try await times(of: key)?.updatedAt.date
  }

  private func times(of key: CacheKey) async throws -> EntryHeader? {
    try key.validate()
    return try await read { try await $0.times(of: key) }
  }

  /// The results of `transform` for all rows of a cursor, in one snapshot.
  private func rows<Row: Sendable>(
    of declaration: PostgreSQLStatement,
    _ transform: @escaping @Sendable (PostgreSQLResult, Int) throws -> Row
  ) async throws -> [Row] {
    try await read { readers in
      try await readers.read { try $0.rows(of: .init(declaration), until: $1, transform) }
    }
  }

  /// The results of `transform` for the rows of each portion of the keys, in one snapshot.
  private func rows<Row: Sendable>(
    of statement: PostgreSQLStatement, _ keys: [CacheKey],
    _ transform: @escaping @Sendable (PostgreSQLResult, ArraySlice<CacheKey>) throws -> [Row]
  ) async throws -> [Row] {
    try keys.validate()
    if keys.isEmpty {
      // Throws `closed` if the engine has been closed.
      return try await read { _ in [] }
    }
    return try await read { readers in
      try await readers.read { try $0.rows(of: statement, keys, until: $1, transform) }
    }
  }
}

extension PostgreSQLResult {
  /// The entry in a row of ``PostgreSQLStatement/declareEntries`` or ``PostgreSQLStatement/entriesOfKeys``.
  fileprivate func entry(_ row: Int) throws -> StorageEntry {
    StorageEntry(
      key: try key(row, 0), data: data(row, 1), header: try header(row, created: 2, updated: 3, sequence: 4))
  }
}
