import Foundation
import PeerSQLite
import StockroomCore
import Synchronization

/// SQLite through its C interface: one connection with a write-ahead log, its statements prepared once.
final class SQLitePeer: PlainValues {
  private let connection: Mutex<SQLiteConnection?>

  init(directory: URL, durability: Durability) throws {
    let path = directory.appending(path: "peer.sqlite3").path(percentEncoded: false)
    connection = Mutex(try SQLiteConnection(path: path, durability: durability))
  }

  var capabilities: EngineCapabilities {
    [.persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .transactions]
  }

  func close() async throws { connection.withLock { $0 = nil } }

  private func locked<Result: Sendable>(_ body: (SQLiteConnection) throws -> Result) throws -> Result {
    try connection.withLock { connection in
      guard let connection else { throw StorageError(.closed, "The database is closed.") }
      return try body(connection)
    }
  }

  func write(_ data: Data, key: CacheKey) async throws { try locked { try $0.put(data, key) } }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try locked { connection in
      try connection.transaction(writing: true) {
        for (key, data) in dataAndKeys { try connection.put(data, key) }
      }
    }
  }

  func read(key: CacheKey) async throws -> Data? { try locked { try $0.get(key) } }

  func read(keys: [CacheKey]) async throws -> [Data] {
    try locked { connection in
      try connection.transaction(writing: false) { try keys.compactMap { try connection.get($0) } }
    }
  }

  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try locked { connection in
      try connection.transaction(writing: false) {
        try keys.compactMap { key in try connection.get(key).map { (key, $0) } }
      }
    }
  }

  func readAllData() async throws -> [Data] { try await readAllDataAndKeys().map(\.data) }

  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try locked { try $0.rows($0.all) { (CacheKey(bytes: bytes(of: $0, at: 0)), data(bytes(of: $0, at: 1))) } }
  }

  func remove(key: CacheKey) async throws { try locked { try $0.delete(key) } }

  func remove(keys: [CacheKey]) async throws {
    try locked { connection in
      try connection.transaction(writing: true) {
        for key in keys { try connection.delete(key) }
      }
    }
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try locked { connection in
      try connection.transaction(writing: true) {
        try body(PeerTransaction(get: connection.get, put: connection.put, delete: connection.delete))
      }
    }
  }

  func removeAllData() async throws { try locked { try $0.run($0.removeAll) } }

  func keyCount() async throws -> Int {
    try locked { try $0.rows($0.count) { Int(sqlite3_column_int64($0, 0)) }.first ?? 0 }
  }

  func allKeys() async throws -> [CacheKey] {
    try locked { try $0.rows($0.keys) { CacheKey(bytes: bytes(of: $0, at: 0)) } }
  }

  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try locked { try $0.scan(ScanBounds(range, limit: limit)) }
  }
}

extension SQLiteConnection {
  fileprivate func put(_ data: Data, _ key: CacheKey) throws {
    try key.withBytes { key in
      try data.withUnsafeBytes { data in
        try bind(key, to: write, at: 1)
        try bind(data, to: write, at: 2)
        try run(write)
      }
    }
  }

  fileprivate func get(_ key: CacheKey) throws -> Data? {
    try key.withBytes { key in
      try bind(key, to: read, at: 1)
      defer { sqlite3_reset(read) }
      return try step(read) ? data(bytes(of: read, at: 0)) : nil
    }
  }

  fileprivate func delete(_ key: CacheKey) throws {
    try key.withBytes { key in
      try bind(key, to: remove, at: 1)
      try run(remove)
    }
  }

  fileprivate func rows<Row>(_ statement: OpaquePointer, _ row: (OpaquePointer) -> Row) throws -> [Row] {
    defer { sqlite3_reset(statement) }
    var rows: [Row] = []
    while try step(statement) { rows.append(row(statement)) }
    return rows
  }

  fileprivate func scan(_ bounds: ScanBounds) throws -> [(key: CacheKey, data: Data)] {
    try bounds.start.withUnsafeBytes { start in
      try bind(start, to: from, at: 1)
      defer { sqlite3_reset(from) }
      var found: [(key: CacheKey, data: Data)] = []
      while found.count < bounds.limit, try step(from) {
        let key = bytes(of: from, at: 0)
        switch bounds.position(of: key) {
        case .before: continue
        case .behind: return found
        case .inside: found.append((CacheKey(bytes: key), data(bytes(of: from, at: 1))))
        }
      }
      return found
    }
  }
}
