import Foundation
import GRDB
import StockroomCore

/// SQLite through GRDB, as its documentation recommends: a pool of connections, one table, cached statements.
final class GRDBPeer: PlainValues {
  /// The functions of GRDB that are called.
  enum Calls {
    /// The synchronous ones, which block the thread and are faster.
    case blocking
    /// The asynchronous ones, as Stockroom's are. They switch threads twice.
    case awaited
  }

  private let pool: DatabasePool
  private let calls: Calls

  init(directory: URL, durability: Durability, calls: Calls) throws {
    self.calls = calls
    let path = directory.appending(path: "peer.sqlite3").path(percentEncoded: false)
    var configuration = Configuration()
    configuration.prepareDatabase { database in
      // 64 MiB, as in the other engines on SQLite; SQLite's default is 2 MB.
      try database.execute(sql: "PRAGMA cache_size = -65536")
      // On some systems SQLite overwrites all removed content by default.
      try database.execute(sql: "PRAGMA secure_delete = FAST")
      #if canImport(Darwin)
        // Otherwise data stay in the drive's cache: https://sqlite.org/pragma.html#pragma_fullfsync
        if durability == .full {
          try database.execute(sql: "PRAGMA fullfsync = ON")
          try database.execute(sql: "PRAGMA checkpoint_fullfsync = ON")
        }
      #endif
    }
    pool = try DatabasePool(path: path, configuration: configuration)
    try pool.writeWithoutTransaction { database in
      // The pool itself chooses NORMAL, which is 1. With FULL, 2, each commit waits for the disk.
      let synchronous = durability == .full ? 2 : 1
      try database.execute(sql: "PRAGMA synchronous = \(synchronous)")
      guard try Int.fetchOne(database, sql: "PRAGMA synchronous") == synchronous else {
        throw StorageError.peer("GRDB has not applied the durability.")
      }
      try database.create(table: "entry", options: [.ifNotExists, .withoutRowID]) { table in
        table.primaryKey("key", .text)
        table.column("value", .blob).notNull()
      }
    }
  }

  var capabilities: EngineCapabilities {
    [.persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites]
  }

  func close() async throws { try pool.close() }

  private func reading<Result: Sendable>(
    _ body: @Sendable (Database) throws -> Result
  ) async throws -> Result {
    switch calls {
    case .blocking: try pool.readBlocking(body)
    case .awaited: try await pool.read(body)
    }
  }

  private func writing(_ body: @Sendable (Database) throws -> Void) async throws {
    switch calls {
    case .blocking: try pool.writeBlocking(body)
    case .awaited: try await pool.write(body)
    }
  }

  func write(_ data: Data, key: CacheKey) async throws {
    try await writing { try $0.cachedStatement(sql: Query.write).execute(arguments: [key.value, data]) }
  }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await writing { database in
      let statement = try database.cachedStatement(sql: Query.write)
      for (key, data) in dataAndKeys { try statement.execute(arguments: [key.value, data]) }
    }
  }

  func read(key: CacheKey) async throws -> Data? {
    try await reading { database in
      try Data.fetchOne(database.cachedStatement(sql: Query.read), arguments: [key.value])
    }
  }

  func read(keys: [CacheKey]) async throws -> [Data] {
    try await reading { database in
      let statement = try database.cachedStatement(sql: Query.read)
      return try keys.compactMap { try Data.fetchOne(statement, arguments: [$0.value]) }
    }
  }

  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await reading { database in
      let statement = try database.cachedStatement(sql: Query.read)
      return try keys.compactMap { key in
        try Data.fetchOne(statement, arguments: [key.value]).map { (key, $0) }
      }
    }
  }

  func readAllData() async throws -> [Data] { try await readAllDataAndKeys().map(\.data) }

  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await reading { database in
      let rows = try Row.fetchCursor(database.cachedStatement(sql: Query.all))
      var entries: [(key: CacheKey, data: Data)] = []
      while let row = try rows.next() { entries.append((CacheKey(verbatim: row[0]), row[1])) }
      return entries
    }
  }

  func allKeys() async throws -> [CacheKey] {
    try await reading { database in
      try String.fetchAll(database.cachedStatement(sql: Query.keys)).map { CacheKey(verbatim: $0) }
    }
  }

  func keyCount() async throws -> Int {
    try await reading { try Int.fetchOne($0.cachedStatement(sql: Query.count)) ?? 0 }
  }

  func remove(key: CacheKey) async throws {
    try await writing { try $0.cachedStatement(sql: Query.remove).execute(arguments: [key.value]) }
  }

  func remove(keys: [CacheKey]) async throws {
    try await writing { database in
      let statement = try database.cachedStatement(sql: Query.remove)
      for key in keys { try statement.execute(arguments: [key.value]) }
    }
  }

  func removeAllData() async throws {
    try await writing { try $0.cachedStatement(sql: Query.removeAll).execute() }
  }

  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let bounds = ScanBounds(range, limit: limit)
    return try await reading { database in
      let start = String(decoding: bounds.start, as: UTF8.self)
      let rows = try Row.fetchCursor(database.cachedStatement(sql: Query.from), arguments: [start])
      var found: [(key: CacheKey, data: Data)] = []
      while found.count < bounds.limit, let row = try rows.next() {
        let key = CacheKey(verbatim: row[0])
        switch key.withBytes(bounds.position) {
        case .before: continue
        case .behind: return found
        case .inside: found.append((key, row[1]))
        }
      }
      return found
    }
  }
}

extension DatabasePool {
  // In functions that are not asynchronous, `read` and `write` are the blocking ones.

  fileprivate func readBlocking<Result>(_ body: (Database) throws -> Result) throws -> Result {
    try read(body)
  }

  fileprivate func writeBlocking(_ body: (Database) throws -> Void) throws { try write(body) }
}

private enum Query {
  static let write = "REPLACE INTO entry VALUES (?, ?)"
  static let read = "SELECT value FROM entry WHERE key = ?"
  static let remove = "DELETE FROM entry WHERE key = ?"
  static let removeAll = "DELETE FROM entry"
  static let all = "SELECT key, value FROM entry"
  static let keys = "SELECT key FROM entry"
  static let count = "SELECT count(*) FROM entry"
  static let from = "SELECT key, value FROM entry WHERE key >= ? ORDER BY key"
}
