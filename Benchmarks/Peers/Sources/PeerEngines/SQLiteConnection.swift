import Foundation
import PeerSQLite
import StockroomCore

/// One connection to a database, with its statements.
final class SQLiteConnection {
  private let database: OpaquePointer
  let write, read, remove, removeAll, all, keys, from, count: OpaquePointer
  private let begin, beginWriting, commit, rollback: OpaquePointer

  /// A table without rowid is one tree instead of two, which shortens reads by a fifth. The page cache saves system
  /// calls. The file is not memory-mapped, since the process would be killed by SIGBUS if it were truncated.
  init(path: String, durability: Durability) throws {
    var opened: OpaquePointer?
    let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX
    guard sqlite3_open_v2(path, &opened, flags, nil) == SQLITE_OK, let database = opened else {
      sqlite3_close_v2(opened)
      throw StorageError.peer("Opening \(path) with SQLite failed.")
    }
    do {
      let settings = """
        PRAGMA journal_mode = WAL;
        PRAGMA synchronous = \(durability == .full ? "FULL" : "NORMAL");
        PRAGMA cache_size = -65536;
        PRAGMA secure_delete = FAST;
        \(Self.syncSettings(durability))
        CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID
        """
      try Self.check(sqlite3_exec(database, settings, nil, nil, nil), database)
      func prepare(_ sql: String) throws -> OpaquePointer {
        var statement: OpaquePointer?
        let flags = UInt32(SQLITE_PREPARE_PERSISTENT)
        try Self.check(sqlite3_prepare_v3(database, sql, -1, flags, &statement, nil), database)
        guard let statement else { throw StorageError.peer("There is no SQL in “\(sql)”.") }
        return statement
      }
      write = try prepare("REPLACE INTO entries VALUES (?1, ?2)")
      read = try prepare("SELECT value FROM entries WHERE key = ?1")
      remove = try prepare("DELETE FROM entries WHERE key = ?1")
      removeAll = try prepare("DELETE FROM entries")
      all = try prepare("SELECT key, value FROM entries")
      keys = try prepare("SELECT key FROM entries")
      from = try prepare("SELECT key, value FROM entries WHERE key >= ?1 ORDER BY key")
      count = try prepare("SELECT count(*) FROM entries")
      begin = try prepare("BEGIN")
      beginWriting = try prepare("BEGIN IMMEDIATE")
      commit = try prepare("COMMIT")
      rollback = try prepare("ROLLBACK")
    } catch {
      // The statements are not finalized, so the connection stays open until the process ends.
      sqlite3_close_v2(database)
      throw error
    }
    self.database = database
  }

  /// Without this, a sync on Apple's systems leaves data in the drive's cache:
  /// https://sqlite.org/pragma.html#pragma_fullfsync
  private static func syncSettings(_ durability: Durability) -> String {
    #if canImport(Darwin)
      durability == .full ? "PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;" : ""
    #else
      ""
    #endif
  }

  deinit {
    for statement in [
      write, read, remove, removeAll, all, keys, from, count, begin, beginWriting, commit, rollback,
    ] {
      sqlite3_finalize(statement)
    }
    sqlite3_close_v2(database)
  }

  /// Moves to the next row. Returns false when there is none.
  func step(_ statement: OpaquePointer) throws -> Bool {
    switch sqlite3_step(statement) {
    case SQLITE_ROW: return true
    case SQLITE_DONE: return false
    default: throw StorageError.peer(String(cString: sqlite3_errmsg(database)))
    }
  }

  /// Runs a statement that returns no rows.
  func run(_ statement: OpaquePointer) throws {
    defer { sqlite3_reset(statement) }
    _ = try step(statement)
  }

  func transaction<Result>(writing: Bool, _ body: () throws -> Result) throws -> Result {
    try run(writing ? beginWriting : begin)
    do {
      let result = try body()
      try run(commit)
      return result
    } catch {
      if sqlite3_get_autocommit(database) == 0 { try run(rollback) }
      throw error
    }
  }

  /// The bytes must be valid until the statement has run. A nil pointer would bind NULL.
  func bind(_ bytes: UnsafeRawBufferPointer, to statement: OpaquePointer, at index: Int32) throws {
    let result =
      bytes.isEmpty
      ? sqlite3_bind_zeroblob(statement, index, 0)
      : sqlite3_bind_blob64(statement, index, bytes.baseAddress, UInt64(bytes.count), nil)
    try Self.check(result, database)
  }

  private static func check(_ result: Int32, _ database: OpaquePointer) throws {
    guard result == SQLITE_OK else { throw StorageError.peer(String(cString: sqlite3_errmsg(database))) }
  }
}

/// The bytes in a column of the current row, which are valid until the next step or reset.
func bytes(of statement: OpaquePointer, at column: Int32) -> UnsafeRawBufferPointer {
  let start = sqlite3_column_blob(statement, column)
  let count = Int(sqlite3_column_bytes(statement, column))
  return UnsafeRawBufferPointer(start: start, count: start == nil ? 0 : count)
}

/// A copy of the bytes.
func data(_ bytes: UnsafeRawBufferPointer) -> Data {
  bytes.baseAddress.map { Data(bytes: $0, count: bytes.count) } ?? Data()
}
