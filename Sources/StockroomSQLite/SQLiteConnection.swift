import CSQLite
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// One connection to a database, with the statements prepared on it so far.
///
/// Opened without SQLite's own mutex, so one thread at a time may use it:
/// https://sqlite.org/threadsafe.html
final class SQLiteConnection: @unchecked Sendable {
  // Safe to share: the pool lends a reading connection to one caller at a time, and the writing one belongs to
  // the engine's own thread. Both hand over through a lock, which orders their accesses to memory.

  enum Role {
    /// Never waits: whoever finds the database busy asks the writer, who may.
    case reader
    case writer(creating: Bool)
  }

  /// In bytes, and never more than the database has.
  private static let cacheSize = 64 << 20

  let path: String
  private var handle: OpaquePointer?
  private var prepared = [OpaquePointer?](repeating: nil, count: SQLiteQuery.allCases.count)

  /// Opens the database file, without reading from it or writing to it.
  init(path: String, role: Role) throws {
    self.path = path
    var flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX
    if case .writer(creating: true) = role { flags |= SQLITE_OPEN_CREATE }
    let result = sqlite3_open_v2(path, &handle, flags, nil)
    guard result == SQLITE_OK, let handle else {
      defer { close() }
      throw StorageError.sqlite(result, handle, "Opening the database \(path) failed.")
    }
    sqlite3_extended_result_codes(handle, 1)
    if case .writer = role { sqlite3_busy_handler(handle, Self.waitForOthers, nil) }
  }

  deinit { close() }

  /// Finalises the statements and closes the connection. May be called twice.
  func close() {
    for statement in prepared { sqlite3_finalize(statement) }
    prepared = prepared.map { _ in nil }
    // With no statement left this cannot fail for being in use. The last connection to a database also moves
    // what is in the write-ahead log into the database; if that fails, the log stays and is read the next time.
    sqlite3_close_v2(handle)
    handle = nil
  }

  /// Calls `body` with the statement for a query, ready to be bound, and rewinds it afterwards.
  func run<Result>(_ query: SQLiteQuery, _ body: (SQLiteStatement) throws -> Result) throws -> Result {
    let statement = SQLiteStatement(handle: try statement(for: query), connection: self)
    // The result repeats the error that step() has already reported.
    defer { sqlite3_reset(statement.handle) }
    return try body(statement)
  }

  /// Runs a query that takes nothing and gives no rows.
  func run(_ query: SQLiteQuery) throws {
    try run(query) { _ = try $0.step() }
  }

  /// Runs SQL that is not worth preparing, and returns the text in its first row and column, if any.
  @discardableResult
  func execute(_ sql: String) throws -> String? {
    var statement: OpaquePointer?
    let result = sqlite3_prepare_v2(handle, sql, -1, &statement, nil)
    defer { sqlite3_finalize(statement) }
    guard result == SQLITE_OK, let statement else { throw error(result, "Preparing “\(sql)”") }
    let running = SQLiteStatement(handle: statement, connection: self)
    guard try running.step(), let text = sqlite3_column_text(statement, 0) else { return nil }
    return String(cString: text)
  }

  /// Does `body` in a transaction: as a whole or, if it throws, not at all.
  func transaction<Result>(_ kind: SQLiteQuery, _ body: () throws -> Result) throws -> Result {
    try run(kind)
    do {
      let result = try body()
      try run(.commit)
      return result
    } catch {
      // After some errors SQLite has rolled back by itself: https://sqlite.org/lang_transaction.html
      if sqlite3_get_autocommit(handle) == 0 { try run(.rollback) }
      throw error
    }
  }

  /// Lets the connection keep pages in memory that it reads again and again, in place of SQLite's 2 MB.
  ///
  /// Reads the database.
  func enlargeCache() throws {
    try execute("PRAGMA cache_size = -\(Self.cacheSize >> 10)")
  }

  /// Whether the database could be opened for reading only.
  var isReadOnly: Bool { sqlite3_db_readonly(handle, "main") == 1 }

  /// The first bytes of the database file, of which there must be as many.
  ///
  /// Read through SQLite's own descriptor: when a process closes another descriptor of the file, it loses every
  /// lock that it has on the file. https://sqlite.org/howtocorrupt.html, section 2.2
  func header(length: Int) throws -> [UInt8] {
    var file: UnsafeMutablePointer<sqlite3_file>?
    let result = sqlite3_file_control(handle, "main", SQLITE_FCNTL_FILE_POINTER, &file)
    guard result == SQLITE_OK, let file, let read = file.pointee.pMethods?.pointee.xRead else {
      throw error(result, "Looking for the file")
    }
    var bytes = [UInt8](repeating: 0, count: length)
    let done = read(file, &bytes, Int32(length), 0)
    guard done == SQLITE_OK else { throw error(done, "Reading the header") }
    return bytes
  }

  /// A number that is another one after each change to the database, by whomever:
  /// https://sqlite.org/c3ref/c_fcntl_begin_atomic_write.html
  ///
  /// During a transaction it tells what the transaction sees, without looking into the database.
  func dataVersion() throws -> UInt32 {
    var version: UInt32 = 0
    let result = sqlite3_file_control(handle, "main", SQLITE_FCNTL_DATA_VERSION, &version)
    guard result == SQLITE_OK else { throw error(result, "Looking for changes") }
    return version
  }

  /// The error for a result code of a call on this connection.
  func error(_ result: Int32, _ action: String) -> StorageError {
    .sqlite(result, handle, "\(action) failed in the database \(path).")
  }

  private func statement(for query: SQLiteQuery) throws -> OpaquePointer {
    if let statement = prepared[query.rawValue] { return statement }
    guard handle != nil else { throw StorageError(.closed, "The connection to \(path) has been closed.") }
    var statement: OpaquePointer?
    let flags = UInt32(SQLITE_PREPARE_PERSISTENT)
    let result = sqlite3_prepare_v3(handle, query.sql, -1, flags, &statement, nil)
    guard result == SQLITE_OK, let statement else { throw error(result, "Preparing “\(query.sql)”") }
    prepared[query.rawValue] = statement
    return statement
  }

  /// Waits while another connection writes: ten milliseconds at most at a time, a minute in all. SQLite's own
  /// handler waits longer each time, so that who has waited longest would get the database last.
  private static let waitForOthers: @convention(c) (UnsafeMutableRawPointer?, Int32) -> Int32 = {
    _, attempts in
    guard attempts < 6_000 else { return 0 }
    usleep(1_000 * UInt32(min(attempts + 1, 10)))
    return 1
  }
}
