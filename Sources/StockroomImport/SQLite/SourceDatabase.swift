import StockroomCSQLite
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An open copy of a database of another library.
final class SourceDatabase: @unchecked Sendable {
  // Safe to share: once the object has been created, the connection and `flag` are used only with `lock` held.

  /// The path of the original, for messages.
  let path: String
  private let copy: DatabaseCopy
  private let handle: OpaquePointer
  private let lock = MutexProtected(())
  /// The flag that the progress handler of the connection checks, which does not retain it.
  private var flag: CancellationFlag

  /// Opens a copy of the database at the path. Does not trust its contents: https://sqlite.org/security.html
  ///
  /// - Parameter flag: Once it is set, statements throw `CancellationError`.
  init(path: String, _ flag: CancellationFlag) throws {
    self.path = path
    self.flag = flag
    copy = try DatabaseCopy(of: path, flag)
    var handle: OpaquePointer?
    let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW
    let result = sqlite3_open_v2(copy.file, &handle, flags, nil)
    guard result == SQLITE_OK, let handle else {
      defer { sqlite3_close_v2(handle) }
      throw Self.error(result, handle, path)
    }
    self.handle = handle
    sqlite3_extended_result_codes(handle, 1)
    follow(flag)
    for setting in ["trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"] {
      try rows("PRAGMA \(setting)") { _ in }
    }
  }

  deinit { sqlite3_close_v2(handle) }

  /// Opens a copy of the database at a URL, unless one is open already, and checks all of it.
  ///
  /// - Parameters:
  ///   - detected: The open copy.
  ///   - url: The database, or the directory that contains it.
  ///   - suffix: The suffix of the database's name in a directory.
  ///   - flag: Replaces the flag with which the copy was opened.
  static func checked(
    _ detected: SourceDatabase?, at url: URL, suffix: String, _ flag: CancellationFlag
  ) throws -> SourceDatabase {
    let database =
      try detected
      ?? SourceDatabase(path: DatabasePath.find(at: url, isDatabase: { $0.hasSuffix(suffix) }), flag)
    database.follow(flag)
    try database.checkIntegrity()
    return database
  }

  /// Makes statements throw `CancellationError` from now on once this flag is set.
  func follow(_ flag: CancellationFlag) {
    let isCancelled: @convention(c) (UnsafeMutableRawPointer?) -> Int32 = { flag in
      guard let flag else { return 0 }
      do {
        try Unmanaged<CancellationFlag>.fromOpaque(flag).takeUnretainedValue().check()
        return 0
      } catch {
        return 1
      }
    }
    lock.withLock { _ in
      sqlite3_progress_handler(handle, 10_000, isCancelled, Unmanaged.passUnretained(flag).toOpaque())
      self.flag = flag
    }
  }

  /// Reads every page. O(size of the database).
  ///
  /// - Throws: `StorageError` with code `corrupted`.
  func checkIntegrity() throws {
    var message: String?
    try rows("PRAGMA integrity_check(1)") { message = $0.text(at: 0) }
    guard message == "ok" else {
      throw StorageError(
        .corrupted, "The database \(path) is corrupted: \(message ?? "it cannot be checked").")
    }
  }

  /// The names of the columns of each table, except virtual tables, which have no rows in the file.
  func tables() throws -> [String: Set<String>] {
    var names: [String] = []
    try rows("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0") { row in
      if let name = row.text(at: 0) { names.append(name) }
    }
    var tables: [String: Set<String>] = [:]
    for name in names {
      try rows("SELECT name FROM pragma_table_info(?)", binding: .text(name)) { row in
        if let column = row.text(at: 0) { tables[name, default: []].insert(column) }
      }
    }
    return tables
  }

  enum Parameter {
    case none
    case text(String)
    case number(Int64)
  }

  /// Calls `body` with each row.
  func rows(
    _ sql: String, binding parameter: Parameter = .none, _ body: (SourceRow) throws -> Void
  ) throws {
    try lock.withLock { _ in
      var statement: OpaquePointer?
      try check(sqlite3_prepare_v2(handle, sql, -1, &statement, nil))
      defer { sqlite3_finalize(statement) }
      guard let statement else { return }
      switch parameter {
      case .none: break
      case .number(let number): try check(sqlite3_bind_int64(statement, 1, number))
      case .text(let text):
        // SQLITE_TRANSIENT, which Swift cannot import.
        let copying = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
        try check(sqlite3_bind_text(statement, 1, text, -1, copying))
      }
      while true {
        switch sqlite3_step(statement) {
        case SQLITE_ROW: try body(SourceRow(statement: statement))
        case SQLITE_DONE: return
        case let failure: try check(failure)
        }
      }
    }
  }

  private func check(_ result: Int32) throws {
    if result == SQLITE_OK { return }
    // Preparing a statement may be interrupted too, since it reads the schema.
    if result & 0xff == SQLITE_INTERRUPT { try flag.check() }
    throw Self.error(result, handle, path)
  }

  private static func error(_ result: Int32, _ handle: OpaquePointer?, _ path: String) -> StorageError {
    let text = (handle.flatMap(sqlite3_errmsg) ?? sqlite3_errstr(result)).map { String(cString: $0) }
    let code: StorageError.Code =
      switch result & 0xff {
      // The statements are valid, so an error is due to the file.
      case SQLITE_CORRUPT, SQLITE_NOTADB, SQLITE_ERROR, SQLITE_SCHEMA, SQLITE_CONSTRAINT, SQLITE_MISMATCH,
        SQLITE_AUTH:
        .corrupted
      case SQLITE_FULL: .diskFull
      case SQLITE_TOOBIG: .valueTooLarge
      case SQLITE_IOERR, SQLITE_CANTOPEN:
        handle.map { StorageError.code(forErrno: sqlite3_system_errno($0)) } ?? .io
      default: .io
      }
    return StorageError(
      code, "Reading a copy of the database \(path) failed: SQLite \(result), \(text ?? "unknown error").")
  }
}

/// A row of a result, valid until the next one.
struct SourceRow {
  fileprivate let statement: OpaquePointer

  func isNull(at column: Int32) -> Bool { sqlite3_column_type(statement, column) == SQLITE_NULL }

  /// An integer, or nil if the column has anything else.
  func integer(at column: Int32) -> Int64? {
    sqlite3_column_type(statement, column) == SQLITE_INTEGER ? sqlite3_column_int64(statement, column) : nil
  }

  /// An integer or a floating-point number, or nil if the column has anything else.
  func number(at column: Int32) -> Double? {
    [SQLITE_INTEGER, SQLITE_FLOAT].contains(sqlite3_column_type(statement, column))
      ? sqlite3_column_double(statement, column) : nil
  }

  /// A text, or nil if the column has anything else, or text that is not UTF-8.
  func text(at column: Int32) -> String? {
    guard sqlite3_column_type(statement, column) == SQLITE_TEXT,
      let start = sqlite3_column_text(statement, column)
    else { return nil }
    let count = Int(sqlite3_column_bytes(statement, column))
    return CacheKey(utf8: UnsafeRawBufferPointer(start: start, count: count))?.value
  }

  /// A copy of a blob, or nil if the column has anything else.
  func blob(at column: Int32) -> Data? {
    guard sqlite3_column_type(statement, column) == SQLITE_BLOB else { return nil }
    // SQLite returns nil for an empty blob.
    guard let start = sqlite3_column_blob(statement, column) else { return Data() }
    return Data(bytes: start, count: Int(sqlite3_column_bytes(statement, column)))
  }
}
