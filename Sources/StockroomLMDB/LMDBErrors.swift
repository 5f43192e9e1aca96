import StockroomCLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A result of a function of LMDB: one of its own negative codes, or an error number of the system.
struct LMDBError: Error, Sendable, Hashable, CustomStringConvertible {
  let code: Int32

  var description: String {
    code > 0 ? SystemError(code).description : "\(String(cString: mdb_strerror(code))), code \(code)"
  }

  /// Throws unless the code means success.
  static func check(_ code: Int32) throws(LMDBError) {
    if code != MDB_SUCCESS { throw LMDBError(code: code) }
  }

  /// The error for a page that LMDB cannot have written.
  static var corruptedPage: LMDBError { LMDBError(code: MDB_CORRUPTED) }

  /// The error for an entry that this engine cannot have written.
  static var corruptedEntry: LMDBError { LMDBError(code: MDB_CORRUPTED) }
}

extension StorageError {
  /// The error for a failed call of LMDB.
  ///
  /// - Parameter message: The operation that failed, and its path.
  static func lmdb(_ error: LMDBError, _ message: String) -> StorageError {
    let code: Code =
      switch error.code {
      // LMDB determines this by requesting a lock: see LMDBHandle.
      case EAGAIN: .locked
      case 1...: StorageError.code(forErrno: error.code)
      // `MDB_NOTFOUND` concerns one of LMDB's own records: the engine handles absent keys before.
      case MDB_CORRUPTED, MDB_PAGE_NOTFOUND, MDB_INVALID, MDB_INCOMPATIBLE, MDB_NOTFOUND: .corrupted
      case MDB_VERSION_MISMATCH: .unsupported
      case MDB_MAP_FULL: .diskFull
      case MDB_READERS_FULL: .locked
      case MDB_BAD_VALSIZE, MDB_TXN_FULL: .valueTooLarge
      default: .io
      }
    return StorageError(code, message, underlying: error)
  }

  /// Converts an error in a transaction to an error for a caller of the engine.
  static func fromTransaction(_ error: any Error, _ message: @autoclosure () -> String) -> any Error {
    guard let error = error as? LMDBError else { return error }
    return lmdb(error, message())
  }
}
