import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A file, created so that only its owner can read and write it. Open until ``close()`` or until this is released.
final class OwnedFile {
  private(set) var path: String
  private var descriptor: Int32

  /// Opens or creates the file. Does not follow a symbolic link, and does not block on a FIFO.
  init(_ url: URL) throws {
    path = url.path
    descriptor = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw failure("Opening") }
    var status = stat()
    guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
      close()
      throw StorageError(.io, "\(path) is not a file.")
    }
  }

  deinit { close() }

  func close() {
    guard descriptor >= 0 else { return }
    // Until its program is loaded, a new child process has a copy of the descriptor, which would keep the lock.
    _ = flock(descriptor, LOCK_UN)
    closeFile(descriptor)
    descriptor = -1
  }

  /// - Throws: `StorageError` with code `locked` if another engine, in any process, has the lock.
  func lock() throws {
    if flock(descriptor, LOCK_EX | LOCK_NB) == 0 { return }
    if errno == EWOULDBLOCK { throw StorageError(.locked, "Another engine has locked \(path).") }
    throw failure("Locking")
  }

  /// - Throws: `StorageError` with code `io` if the path leads to another file now, or to none.
  func expectInPlace() throws {
    var (here, there) = (stat(), stat())
    guard fstat(descriptor, &here) == 0, stat(path, &there) == 0,
      here.st_ino == there.st_ino, here.st_dev == there.st_dev
    else { throw StorageError(.io, "\(path) has been deleted, moved or replaced.") }
  }

  func read() throws -> Data {
    var bytes = Data()
    var part = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = pread(descriptor, &part, part.count, off_t(bytes.count))
      if count == 0 { return bytes }
      if count < 0, errno != EINTR { throw failure("Reading") }
      bytes += part.prefix(max(0, count))
    }
  }

  /// Writes bytes at the end of the file. If that fails, the part that was written is removed.
  func write(_ bytes: Data, at end: Int) throws {
    var written = 0
    while written < bytes.count {
      let count = bytes.withUnsafeBytes {
        pwrite(descriptor, $0.baseAddress.map { $0 + written }, $0.count - written, off_t(end + written))
      }
      if count < 0, errno != EINTR {
        let error = failure("Writing to")
        // If this fails too, the next line overwrites the part, or it is ignored when the file is read.
        ftruncate(descriptor, off_t(end))
        throw error
      }
      written += max(0, count)
    }
    // Removes what an earlier process or a failed write has left after the end.
    ftruncate(descriptor, off_t(end + bytes.count))
  }

  func truncate() throws {
    guard ftruncate(descriptor, 0) == 0 else { throw failure("Writing to") }
  }

  /// In bytes.
  func length() throws -> Int {
    let length = lseek(descriptor, 0, SEEK_END)
    guard length >= 0 else { throw failure("Reading the length of") }
    return Int(length)
  }

  func sync() throws {
    guard fsync(descriptor) == 0 else { throw failure("Syncing") }
  }

  func rename(to other: String) throws {
    guard renameFile(path, other) == 0 else { throw failure("Renaming") }
    path = other
  }

  /// Creates a directory if it is missing, and those above it, for their owner only. `FileManager` would create it for
  /// all users first, and then set its permissions.
  static func makeDirectory(_ directory: URL) throws {
    let path = directory.path
    if mkdir(path, 0o700) == 0 { return }
    let number = errno
    let parent = directory.deletingLastPathComponent()
    switch number {
    case EEXIST:
      var status = stat()
      guard stat(path, &status) == 0 else { throw error(errno, "Making the directory \(path)") }
      guard status.st_mode & S_IFMT == S_IFDIR else { throw error(ENOTDIR, "Making the directory \(path)") }
    case ENOENT where parent.path != path:
      try makeDirectory(parent)
      if mkdir(path, 0o700) != 0, errno != EEXIST { throw error(errno, "Making the directory \(path)") }
    default: throw error(number, "Making the directory \(path)")
    }
  }

  /// Syncs the entries of a directory.
  static func sync(_ directory: URL) throws {
    let descriptor = open(directory.path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0, fsync(descriptor) == 0 else {
      let number = errno
      closeFile(descriptor)
      throw error(number, "Syncing \(directory.path)")
    }
    closeFile(descriptor)
  }

  private func failure(_ what: String) -> StorageError { Self.error(errno, "\(what) \(path)") }

  private static func error(_ number: Int32, _ what: String) -> StorageError {
    let code: StorageError.Code =
      switch number {
      case ENOSPC, EDQUOT, EFBIG: .diskFull
      case EROFS: .readOnly
      case EACCES, EPERM: .permissionDenied
      default: .io
      }
    return StorageError(code, "\(what) failed: \(String(cString: strerror(number))).")
  }
}

private func closeFile(_ descriptor: Int32) { _ = close(descriptor) }
private func renameFile(_ old: String, _ new: String) -> Int32 { rename(old, new) }
