import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The file `data.mdb`, opened in addition to LMDB's own descriptor: to determine its identity and status, and to hold
/// the lock under which the database is opened and closed.
///
/// LMDB's own locks are on `lock.mdb`, so closing this descriptor releases none of them.
final class LMDBFile: Sendable {
  private let file: FileDescriptor
  /// The path of the directory, without a trailing slash.
  let directory: String
  let identity: FileIdentity

  var path: String { file.path }
  var descriptor: Int32 { file.number }

  /// Opens the file in the directory, and creates it if necessary (rule O1).
  ///
  /// - Throws: `StorageError` with code `corrupted` if the lock file is all that is left of a database (rule F2).
  init(directory: FileManager.Directory, permissions: FilePermissions) throws {
    try directory.create(permissions)
    self.directory = directory.path
    let path = directory.path + "/data.mdb"
    // Checked first: another process that is creating the database creates the lock file last.
    let hasBeenOpened = try LMDBLockFile.isThere(in: directory.path)
    if let existing = try FileDescriptor.openFile(atPath: path) {
      file = existing
      // A second name is left by a process that died while it created the database, possibly before the name `data.mdb`
      // was on disk (rule W6).
      if try file.status().linkCount > 1 { try FileManager.Directory.sync(directory.path) }
      UnfinishedDirectory.removeAbandoned(for: path, Self.unfinishedNames)
    } else {
      guard !hasBeenOpened else {
        throw StorageError(
          .corrupted, "\(path) is gone: the lock file beside it says that there has been a database.")
      }
      UnfinishedDirectory.removeAbandoned(for: path, Self.unfinishedNames)
      try Self.make(path, permissions)
      guard let made = try FileDescriptor.openFile(atPath: path) else {
        throw StorageError.posix(ENOENT, "Opening \(path) failed.")
      }
      file = made
    }
    let status = try file.status()
    guard status.isRegularFile else { throw StorageError.notAFile(path) }
    identity = status.identity
  }

  deinit { close() }

  /// Releases the lock and closes the file. May be called twice.
  func close() {
    unlock()
    file.release()
  }

  /// Prevents other processes from opening or closing the database, and returns whether the path still leads
  /// to the file.
  ///
  /// - Throws: `StorageError` with code `locked` if another process has held the lock for `timeout`. If this
  ///   throws, the caller does not hold the lock.
  func lock(timeout: Duration) throws -> Bool {
    try FileLock.acquire(descriptor, path: path, timeout: timeout)
    do {
      return try FileIdentity(path: path) == identity
    } catch {
      unlock()
      throw error
    }
  }

  /// Acquires the lock if it is free, and returns whether it was.
  func tryLock() -> Bool { (try? FileLock.tryAcquire(descriptor, path: path)) ?? false }

  func unlock() { FileLock.release(descriptor) }

  /// Reads up to `count` bytes of a file from an offset. Returns fewer only at the end of the file.
  static func read(_ count: Int, at offset: UInt64, of file: Int32) throws(LMDBError) -> [UInt8] {
    var failure: Int32 = 0
    let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, initializedCount in
      // The system may return fewer bytes than requested anywhere in a file.
      while initializedCount < count, let start = buffer.baseAddress {
        let rest = (
          start + initializedCount, count - initializedCount, off_t(offset) + off_t(initializedCount)
        )
        let result = retrying { pread(file, rest.0, rest.1, rest.2) }
        if result < 0 { failure = errno }
        if result <= 0 { break }
        initializedCount += result
      }
    }
    if failure != 0 { throw LMDBError(code: failure) }
    return bytes
  }

  private static let unfinishedNames = ["data.mdb", "lock.mdb"]

  /// Creates the database in another directory and moves it to its path when it is complete. So an empty file at the
  /// path is never a new database, but always a truncated one (rule F2).
  private static func make(_ path: String, _ permissions: FilePermissions) throws {
    let unfinished = try UnfinishedDirectory(for: path)
    defer { unfinished.remove(unfinishedNames) }
    let file = unfinished.path + "/data.mdb"
    guard try FileDescriptor.makeFile(atPath: file, permissions) != nil else {
      throw StorageError.posix(EEXIST, "Creating \(file) failed.")
    }
    try LMDBHandle.make(in: unfinished.path)
    try FileManager.Directory.name(file, path)
  }
}
