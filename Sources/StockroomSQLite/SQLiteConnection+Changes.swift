import StockroomCSQLite
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

extension SQLiteConnection {
  /// A number that changes with each change to the database, by any connection:
  /// https://sqlite.org/c3ref/c_fcntl_begin_atomic_write.html
  ///
  /// During a transaction, it is the number of the state that the transaction sees, and is determined without
  /// reading the database.
  func dataVersion() throws -> UInt32 {
    var version: UInt32 = 0
    let result = sqlite3_file_control(handle, "main", SQLITE_FCNTL_DATA_VERSION, &version)
    guard result == SQLITE_OK else { throw error(result, "Looking for changes") }
    return version
  }

  /// The number of rows that have been changed on this connection, which eventually wraps around.
  var changeCount: Int32 { sqlite3_total_changes(handle) }

  /// A number that increases by one with each commit, by any connection, as long as the database is open
  /// anywhere; after a crash of another process it may start over. Reads two words of shared memory.
  ///
  /// - Throws: `StorageError` with code `locked` if it cannot be read consistently within about ten milliseconds, for example
  ///   because a process died while writing it.
  func commitNumber() throws -> UInt64 { try latestCommit().number }

  /// The number with a checksum of the log up to this commit, which distinguishes two commits with the same number.
  func latestCommit() throws -> (number: UInt64, checksum: UInt64) {
    var number: UInt32 = 0
    var checksum: UInt64 = 0
    for _ in 0..<1_000 {
      let result = stockroom_sqlite3_commit_number(handle, &number, &checksum)
      if result == SQLITE_OK { return (UInt64(number), checksum) }
      guard result == SQLITE_BUSY else { throw error(result, "Looking for changes") }
      usleep(10)
    }
    throw error(SQLITE_BUSY, "Looking for changes")
  }
}
