import StockroomCLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The file `lock.mdb`, opened before LMDB opens it, and closed after LMDB has closed it.
///
/// LMDB's locks on it are POSIX locks, which a process loses as soon as it closes any descriptor of the file.
/// So no other object of this process may have the same file open, which ``LMDBRegistry`` ensures.
final class LMDBLockFile: Sendable {
  let identity: FileIdentity
  /// Whether this object created the file.
  let isNew: Bool
  private let file: FileDescriptor

  var path: String { file.path }
  private var descriptor: Int32 { file.number }

  /// The size that LMDB gives the file for this number of readers, and a little more.
  private static let size = Int(LMDBHandle.maximumReaders) * 64 + 4096

  /// Opens the file in the directory, and creates it if necessary. Call it only with the lock of
  /// ``LMDBFile``.
  ///
  /// - Parameter claim: Registers the identity of the file before it is opened, and returns whether it is
  ///   free.
  init(
    directory: String, permissions: FilePermissions, claim: (FileIdentity) -> Bool
  ) throws {
    let path = directory + "/lock.mdb"
    if let status = try FileStatus(atPath: path) {
      guard status.isRegularFile else { throw StorageError.notAFile(path) }
      guard status.linkCount <= 1 else {
        throw StorageError(
          .corrupted,
          "\(path) is the same file as another one, by a hard link, which would be written over. Remove it while nobody has the "
            + "database open.")
      }
      isNew = false
      guard claim(status.identity) else {
        throw StorageError(
          .io,
          "\(path) belongs to a database that an engine of this process has open and that was replaced since. "
            + "Close that engine first.")
      }
      guard let opened = try FileDescriptor.openFile(atPath: path),
        try opened.status().identity == status.identity
      else { throw StorageError(.io, "\(path) was replaced while it was being opened.") }
      file = opened
      identity = status.identity
    } else {
      guard let made = try FileDescriptor.makeFile(atPath: path, permissions) else {
        throw StorageError.posix(EEXIST, "Creating \(path) failed.")
      }
      file = made
      identity = try made.status().identity
      isNew = true
      _ = claim(identity)
    }
    do {
      try fill()
    } catch {
      // Deinitializing the object closes the descriptor.
      if isNew { unlink(path) }
      throw error
    }
  }

  deinit { close() }

  /// Whether the directory contains a lock file of the size that an engine gives it, which shows that there has been a
  /// database. Does not open the file, since an engine of this process may have it open.
  static func isThere(in directory: String) throws -> Bool {
    guard let status = try FileStatus(atPath: directory + "/lock.mdb") else { return false }
    return status.isRegularFile && status.size == size
  }

  /// Closes the file. Call it only once LMDB has closed it.
  func close() { file.release() }

  /// Allocates disk blocks for the file. LMDB would create it without blocks, and if the disk is full, its first write
  /// to the map would end the process with SIGBUS.
  private func fill() throws {
    let size = try file.status().size
    let missing = Self.size - size
    if missing <= 0 { return }
    // Another process has the database open, so the file keeps its size.
    if !isUnused {
      // If the file is smaller than a page, LMDB maps one page of memory and accesses addresses beyond it.
      if size >= 4096 { return }
      throw StorageError(.io, "\(path), which another process has open, has been truncated.")
    }
    do {
      try [UInt8](repeating: 0, count: missing).withUnsafeBytes { try file.write($0, at: size) }
    } catch {
      try file.truncate(to: size)
      throw error
    }
  }

  /// Removes the file, which no other process can have opened yet.
  func remove() { unlink(path) }

  /// Whether the file is immutable. LMDB writes to its map of the file, even for reads, and the process would end with
  /// SIGBUS.
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
    // The locks of this process do not count.
    return fcntl(descriptor, F_GETLK, &lock) == 0 && lock.l_type == Int16(F_UNLCK)
  }
}
