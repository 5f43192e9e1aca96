import StockroomCLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Whether `data.mdb` is a database that LMDB can open, checked before LMDB sees the file.
///
/// LMDB maps the file and trusts its contents. Accessing a page beyond the end of the file ends the process with
/// SIGBUS, and a root that is not a page fails an assertion, which aborts the process. This check throws for such files
/// first (rule F2).
enum LMDBFileCheck {
  /// Validates the header, the length of the file, and the root pages of its trees. O(1).
  ///
  /// - Throws: `StorageError` with code `corrupted` or `io`, or `unsupported` if the database belongs to
  ///   another program.
  static func validate(fileDescriptor: Int32, path: String) throws {
    // Another process may be in the middle of a commit, or may have committed twice since the header was read. The
    // check is repeated unless the header is unchanged, in which case the file is corrupted.
    for _ in 0..<100 {
      let snapshot = try? LMDBFileHeader.newest(of: fileDescriptor, path: path)
      do {
        return try validate(try LMDBFileHeader.newest(of: fileDescriptor, path: path), fileDescriptor, path)
      } catch {
        if let snapshot, snapshot == (try? LMDBFileHeader.newest(of: fileDescriptor, path: path)) {
          throw error
        }
      }
    }
    try validate(try LMDBFileHeader.newest(of: fileDescriptor, path: path), fileDescriptor, path)
  }

  private static func validate(_ snapshot: LMDBMetaPage, _ file: Int32, _ path: String) throws {
    // The size is determined after the meta pages: another process that writes makes the file longer first.
    var status = stat()
    guard fstat(file, &status) == 0 else {
      throw StorageError.posix(errno, "Reading the status of \(path) failed.")
    }
    let needed = (snapshot.lastPage + 1) * UInt64(snapshot.pageSize)
    guard status.st_size >= needed else {
      throw LMDBFileHeader.corrupted(
        path, "it is truncated: \(status.st_size) of at least \(needed) bytes are left")
    }
    do {
      var check = LMDBTreeCheck(file: file, snapshot)
      try check.checkRoots(path)
    } catch let error as LMDBError {
      throw error.code == MDB_CORRUPTED
        ? LMDBFileHeader.corrupted(path, "a root of its trees is corrupted")
        : StorageError.lmdb(error, "Reading \(path) failed")
    }
  }
}
