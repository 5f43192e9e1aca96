import StockroomCLMDB
import StockroomCore
import Synchronization

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The file `lock.mdb`, opened beside LMDB: before it opens it, and closed after it has closed it.
///
/// LMDB's locks on it are those of POSIX, which a process loses as soon as it closes any descriptor of the file. So no
/// other object of this process may have the same file open: ``LMDBRegistry`` sees to that.
final class LMDBLockFile: Sendable {
  let path: String
  let identity: FileIdentity
  /// Whether it was not there before.
  let isNew: Bool
  private let descriptor: Int32
  private let isClosed = Atomic(false)

  /// What LMDB makes of it for so many readers, and a little more.
  private static let size = Int(LMDBHandle.maximumReaders) * 64 + 4096

  /// Opens the file in the directory, and makes it if need be. Only with the lock of ``LMDBFile``.
  ///
  /// - Parameter claim: Takes note of which file it is, before it is opened, and returns whether it is free to be.
  init(
    directory: String, permissions: FilePermissions, claim: (FileIdentity) -> Bool
  ) throws {
    path = directory + "/lock.mdb"
    var status = stat()
    if lstat(path, &status) == 0 {
      guard status.st_mode & S_IFMT == S_IFREG else { throw LMDBFile.noFile(path) }
      identity = FileIdentity(status)
      isNew = false
      guard claim(identity) else {
        throw StorageError(
          .io,
          "\(path) belongs to a database that an engine of this process has open and that was replaced since. "
            + "Close that engine first.")
      }
      descriptor = LMDBFile.open(path)
    } else {
      guard errno == ENOENT else { throw StorageError.posix(errno, "Examining \(path) failed") }
      descriptor = LMDBFile.open(path, O_CREAT | O_EXCL)
      guard descriptor >= 0 else { throw StorageError.posix(errno, "Making \(path) failed") }
      identity = try LMDBFile.identityOfFile(descriptor, path)
      isNew = true
      _ = claim(identity)
    }
    guard descriptor >= 0 else { throw StorageError.posix(errno, "Opening \(path) failed") }
    do {
      guard try LMDBFile.identityOfFile(descriptor, path) == identity else {
        throw StorageError(.io, "\(path) was replaced while it was being opened.")
      }
      if isNew { try permissions.apply(to: descriptor, path) }
      try fill()
    } catch {
      // Deinitialising the object closes the descriptor.
      if isNew { unlink(path) }
      throw error
    }
  }

  deinit { close() }

  /// Closes the file. Only once LMDB has closed it.
  func close() {
    if !isClosed.exchange(true, ordering: .relaxed) { systemClose(descriptor) }
  }

  /// Gives the file blocks of its own. LMDB would make it without, and the first store into its map would end the process
  /// with SIGBUS if the disk is full.
  private func fill() throws {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw StorageError.posix(errno, "Examining \(path) failed") }
    let missing = Self.size - Int(status.st_size)
    if missing <= 0 { return }
    // LMDB makes do with what others have made of it.
    if !isUnused {
      // A page of memory is all that LMDB maps of one that is even smaller, and then it goes beyond.
      if status.st_size >= 4096 { return }
      throw StorageError(.io, "\(path), which another process has open, has been cut off.")
    }
    let zeros = [UInt8](repeating: 0, count: missing)
    let written = pwrite(descriptor, zeros, missing, off_t(status.st_size))
    guard written == missing else {
      let number = written < 0 ? errno : ENOSPC
      _ = ftruncate(descriptor, status.st_size)
      throw StorageError.posix(number, "Making \(path) failed")
    }
  }

  /// Removes the file, which nobody else has had the time to open.
  func remove() { unlink(path) }

  /// Whether the file has been made immutable. LMDB writes to it through its map, for each read too, and the system answers
  /// that with SIGBUS.
  var isImmutable: Bool {
    #if os(Linux)
      var flags = 0
      // FS_IOC_GETFLAGS and FS_IMMUTABLE_FL, which are macros. Not every file system has them.
      return ioctl(descriptor, 0x8008_6601, &flags) == 0 && flags & 0x10 != 0
    #else
      return false
    #endif
  }

  /// Whether no other process has the database open, by LMDB's own lock.
  var isUnused: Bool {
    var lock = flock()
    lock.l_type = Int16(F_WRLCK)
    lock.l_whence = Int16(SEEK_SET)
    lock.l_len = 1
    // The locks of this process are no obstacle to it.
    return fcntl(descriptor, F_GETLK, &lock) == 0 && lock.l_type == Int16(F_UNLCK)
  }
}
