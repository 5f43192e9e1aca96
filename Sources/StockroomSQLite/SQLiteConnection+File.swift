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
  /// Whether the database could only be opened for reading.
  var isReadOnly: Bool { sqlite3_db_readonly(handle, "main") == 1 }

  /// Whether the path, resolved as SQLite has done, leads to another file than the open one, or to none.
  func hasMoved() throws -> Bool {
    var hasMoved: Int32 = 0
    let result = sqlite3_file_control(handle, "main", SQLITE_FCNTL_HAS_MOVED, &hasMoved)
    guard result == SQLITE_OK else { throw error(result, "Looking for the file") }
    return hasMoved != 0
  }

  /// - Throws: `StorageError` with code `io` if ``hasMoved()``.
  func checkPlace() throws {
    if try hasMoved() { throw StorageError.posix(ESTALE, "The database \(path) has been replaced.") }
  }

  /// The first bytes of the database file, which must be at least that long.
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
}
