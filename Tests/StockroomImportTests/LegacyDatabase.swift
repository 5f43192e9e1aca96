import Foundation
import StockroomCSQLite
import StockroomCore

/// A database as another library creates it, with the same SQL statements.
final class LegacyDatabase {
  /// The tables that versions of the libraries create.
  enum Layout: CaseIterable, Sendable {
    /// Bodega 2: times without a time zone, by default that of the table's creation.
    case bodega
    /// Bodega's later development: the table has the name of the file, and times end with Z.
    case bodegaWithoutDefaults
    /// PersistentCacheKit.
    case persistentCache

    var creation: String {
      switch self {
      case .bodega:
        """
        CREATE TABLE IF NOT EXISTS "data" ("key" TEXT PRIMARY KEY NOT NULL, "value" BLOB NOT NULL, \
        "createdAt" TEXT NOT NULL DEFAULT ('2022-08-22T09:30:00.125'), \
        "updatedAt" TEXT NOT NULL DEFAULT ('2022-08-22T09:30:00.125'))
        """
      case .bodegaWithoutDefaults:
        """
        CREATE TABLE IF NOT EXISTS notes ("key" TEXT PRIMARY KEY NOT NULL, "value" BLOB NOT NULL, \
        "createdAt" TEXT NOT NULL, "updatedAt" TEXT NOT NULL)
        """
      case .persistentCache:
        "CREATE TABLE IF NOT EXISTS cache_storage (key TEXT PRIMARY KEY NOT NULL, data BLOB, createdAt INTEGER)"
      }
    }

    var fileName: String {
      switch self {
      case .bodega: "data.sqlite3"
      case .bodegaWithoutDefaults: "notes.sqlite3"
      case .persistentCache: "storage.sqlite"
      }
    }
  }

  struct Failure: Error { let message: String }

  let url: URL
  private var handle: OpaquePointer?

  /// Opens the database, and creates it if there is none.
  init(at url: URL) throws {
    self.url = url
    let result = sqlite3_open(url.path(percentEncoded: false), &handle)
    guard result == SQLITE_OK else { throw Failure(message: "Opening \(url) failed: \(result)") }
  }

  /// A new database with the table of a layout, in a directory.
  convenience init(_ layout: Layout, in directory: URL) throws {
    try self.init(at: directory.appending(path: layout.fileName))
    try execute(layout.creation)
  }

  deinit { close() }

  func close() {
    sqlite3_close_v2(handle)
    handle = nil
  }

  /// A value of a column.
  enum Value {
    case text(String)
    case blob(Data)
    case number(Double)
    case null
  }

  func execute(_ sql: String, _ values: Value...) throws {
    var statement: OpaquePointer?
    guard sqlite3_prepare_v2(handle, sql, -1, &statement, nil) == SQLITE_OK else { throw failure(sql) }
    defer { sqlite3_finalize(statement) }
    let copying = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
    for (index, value) in zip(Int32(1)..., values) {
      switch value {
      case .text(let text): sqlite3_bind_text(statement, index, text, Int32(text.utf8.count), copying)
      case .number(let number): sqlite3_bind_double(statement, index, number)
      case .null: sqlite3_bind_null(statement, index)
      case .blob(let data):
        _ =
          data.isEmpty
          ? sqlite3_bind_zeroblob(statement, index, 0)
          : data.withUnsafeBytes {
            sqlite3_bind_blob(statement, index, $0.baseAddress, Int32($0.count), copying)
          }
      }
    }
    while true {
      switch sqlite3_step(statement) {
      case SQLITE_ROW: continue
      case SQLITE_DONE: return
      default: throw failure(sql)
      }
    }
  }

  private func failure(_ sql: String) -> Failure {
    Failure(message: "\(sql): \(String(cString: sqlite3_errmsg(handle)))")
  }

  /// Writes one value like Bodega's single write, which leaves the creation time to the table's default.
  func insert(_ key: String, _ data: Data, updatedAt: String = "2023-01-02T03:04:05.678") throws {
    try execute(
      #"INSERT INTO "data" ("key", "value", "updatedAt") VALUES (?, ?, ?)"#, .text(key), .blob(data),
      .text(updatedAt))
  }

  /// Writes one value like Bodega's batches, which replace rows.
  func replace(_ key: String, _ data: Data, updatedAt: String = "2023-01-02T03:04:05.678") throws {
    try execute(
      #"INSERT OR REPLACE INTO "data" ("key", "value", "updatedAt") VALUES (?, ?, ?)"#, .text(key),
      .blob(data), .text(updatedAt))
  }
}
