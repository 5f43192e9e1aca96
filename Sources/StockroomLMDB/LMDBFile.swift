import StockroomCore
import Synchronization

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

/// The file `data.mdb`, opened beside LMDB to learn which file it is and what it looks like, and for the lock under which
/// it is opened and closed.
///
/// Closing a descriptor of it takes no lock from LMDB, whose locks are on `lock.mdb`.
final class LMDBFile: Sendable {
  let descriptor: Int32
  let path: String
  /// The path of the directory, without a slash at its end.
  let directory: String
  let identity: FileIdentity
  private let isClosed = Atomic(false)

  /// Opens the file in the directory, and makes either if need be (rule O1).
  init(directory: FileManager.Directory, permissions: FilePermissions) throws {
    try directory.create(permissions)
    self.directory = directory.path
    path = directory.path + "/data.mdb"
    var descriptor = Self.open(path)
    if descriptor < 0 && errno == ENOENT {
      try Self.make(path, in: directory.path, permissions)
      descriptor = Self.open(path)
    }
    // Opening a directory for writing fails.
    if descriptor < 0, errno == ELOOP || errno == EISDIR { throw Self.noFile(path) }
    guard descriptor >= 0 else { throw StorageError.posix(errno, "Opening \(path) failed") }
    self.descriptor = descriptor
    do {
      identity = try Self.identityOfFile(descriptor, path)
    } catch {
      systemClose(descriptor)
      throw error
    }
  }

  deinit { close() }

  /// Gives back the lock and closes the file.
  func close() {
    if isClosed.exchange(true, ordering: .relaxed) { return }
    unlock()
    systemClose(descriptor)
  }

  /// Neither follows a symbolic link nor waits for the other end of a FIFO (rule O5).
  static func open(_ path: String, _ flags: Int32 = 0) -> Int32 {
    systemOpen(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags)
  }

  /// - Throws: `StorageError` with code `unsupported` unless it is an ordinary file.
  static func identityOfFile(_ descriptor: Int32, _ path: String) throws -> FileIdentity {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw StorageError.posix(errno, "Examining \(path) failed") }
    guard status.st_mode & S_IFMT == S_IFREG else { throw noFile(path) }
    return FileIdentity(status)
  }

  static func noFile(_ path: String) -> StorageError {
    StorageError(.unsupported, "\(path) is no file, but a directory, a symbolic link or something else.")
  }

  /// Keeps other processes from opening or closing the database, and returns whether the path still leads to the file.
  ///
  /// - Throws: `StorageError` with code `locked` if another process has kept the lock for as long as `timeout`.
  func lock(timeout: Duration) throws -> Bool {
    try FileLock.acquire(descriptor, path: path, timeout: timeout)
    return try FileIdentity(path: path) == identity
  }

  /// Whether nobody else has the lock, which the caller then has.
  func tryLock() -> Bool { (try? FileLock.tryAcquire(descriptor, path: path)) ?? false }

  func unlock() { FileLock.release(descriptor) }

  /// Makes the database in another directory and gives it its place when it is complete, so that an empty file is
  /// never a new database, but always one that was cut off (rule F2).
  private static func make(_ path: String, in directory: String, _ permissions: FilePermissions) throws {
    let unfinished = "\(directory)/new-\(UUID().uuidString)"
    guard mkdir(unfinished, 0o700) == 0 else {
      throw StorageError.posix(errno, "Making the directory \(unfinished) failed")
    }
    let file = unfinished + "/data.mdb"
    defer {
      unlink(file)
      unlink(unfinished + "/lock.mdb")
      rmdir(unfinished)
    }
    let descriptor = open(file, O_CREAT | O_EXCL)
    guard descriptor >= 0 else { throw StorageError.posix(errno, "Making \(file) failed") }
    defer { systemClose(descriptor) }
    try permissions.apply(to: descriptor, file)
    try LMDBHandle.make(in: unfinished)
    try FileManager.Directory.name(file, path)
  }
}

extension FilePermissions {
  /// Gives a file that has just been made its permissions, of which the process's umask may have taken some away.
  func apply(to descriptor: Int32, _ path: String) throws {
    guard self == .owner || fchmod(descriptor, mode_t(fileMode)) == 0 else {
      throw StorageError.posix(errno, "Setting the permissions of \(path) failed")
    }
  }
}

// Under names that no method of a type with these calls can hide.

func systemOpen(_ path: String, _ flags: Int32) -> Int32 { open(path, flags, 0o600) }

func systemClose(_ descriptor: Int32) { _ = close(descriptor) }
