import StockroomCSQLite
import StockroomCore

/// An error of SQLite, as the cause of a `StorageError`.
struct SQLiteFailure: Error, CustomStringConvertible {
  /// The extended result code: https://sqlite.org/rescode.html
  let resultCode: Int32
  /// SQLite's own message.
  let text: String
  /// The `errno` of the system call that failed, or 0.
  let systemError: Int32

  var description: String {
    let system = systemError == 0 ? "" : ": \(SystemError(systemError))"
    return "SQLite \(resultCode), \(text)\(system)"
  }
}

extension Error {
  /// Whether a commit has failed because there was no space to write it to the log completely, and so will not be
  /// recovered from there. SQLite has another result code for a sync that fails, whatever the cause.
  var isFullBeforeCommit: Bool {
    ((self as? StorageError)?.underlying as? SQLiteFailure).map { $0.resultCode & 0xff == SQLITE_FULL }
      ?? false
  }
}

extension StorageError {
  /// The error for a result code of SQLite.
  ///
  /// - Parameters:
  ///   - connection: The connection, for details; nil if there is none.
  ///   - message: The operation that failed, and its path.
  static func sqlite(_ resultCode: Int32, _ connection: OpaquePointer?, _ message: String) -> StorageError {
    let text = connection.flatMap(sqlite3_errmsg) ?? sqlite3_errstr(resultCode)
    let failure = SQLiteFailure(
      resultCode: resultCode,
      text: text.map { String(cString: $0) } ?? "unknown error",
      systemError: connection.map(sqlite3_system_errno) ?? 0)
    return StorageError(code(for: failure), message, underlying: failure)
  }

  private static func code(for failure: SQLiteFailure) -> Code {
    // SQLITE_IOERR_SHORT_READ and SQLITE_IOERR_CORRUPTFS: the file ends too early, or the file system is corrupted.
    if [10 | 2 << 8, 10 | 33 << 8].contains(failure.resultCode) { return .corrupted }
    switch failure.resultCode & 0xff {
    // The engine's statements are valid, so an error is due to the schema of the file.
    case SQLITE_CORRUPT, SQLITE_NOTADB, SQLITE_ERROR, SQLITE_SCHEMA, SQLITE_CONSTRAINT, SQLITE_MISMATCH:
      return .corrupted
    case SQLITE_FULL: return .diskFull
    // SQLITE_PROTOCOL: others have kept the lock for so long that a reader gave up.
    case SQLITE_BUSY, SQLITE_LOCKED, SQLITE_PROTOCOL: return .locked
    // SQLITE_READONLY_DBMOVED
    case SQLITE_READONLY: return failure.resultCode >> 8 == 4 ? .io : .readOnly
    case SQLITE_PERM, SQLITE_AUTH: return .permissionDenied
    case SQLITE_TOOBIG: return .valueTooLarge
    case SQLITE_IOERR, SQLITE_CANTOPEN:
      let code = StorageError.code(forErrno: failure.systemError)
      // EFBIG means that the database, which holds many values, cannot grow further.
      return code == .valueTooLarge ? .diskFull : code
    default: return .io
    }
  }
}
