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
import StockroomCore
import Synchronization

/// An open file or directory. The system calls that need nothing but one are here.
final class FileDescriptor: Sendable {
  private let descriptor: Atomic<Int32>
  private let directory: String
  private let entry: FileName?

  init(owning descriptor: Int32, path: String) {
    self.descriptor = Atomic(descriptor)
    directory = path
    entry = nil
  }

  /// The file of an entry below a directory.
  init(owning descriptor: Int32, _ entry: FileName, below directory: String) {
    self.descriptor = Atomic(descriptor)
    self.directory = directory
    self.entry = entry
  }

  /// Where the file was when it was opened, for messages. Put together only when somebody asks.
  var path: String { entry.map { "\(directory)/\($0.path)" } ?? directory }

  deinit { release() }

  /// What system calls take. Negative, which they all refuse, once it has been released.
  var number: Int32 { descriptor.load(ordering: .relaxed) }

  /// Closes the file. Nobody may be using it.
  func release() {
    let number = descriptor.exchange(-1, ordering: .acquiringAndReleasing)
    if number >= 0 { _ = close(number) }
  }
}

// MARK: - Opening

extension FileDescriptor {
  /// What every open has: no symbolic link is followed in the last component, a pipe or a device that somebody
  /// put in the place of a file does not make us wait, and no child process inherits anything.
  static let commonFlags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC

  /// Opens what is at the path itself, which may go through symbolic links: the user named it.
  static func openDirectory(atPath path: String) throws -> FileDescriptor {
    let number = retrying { open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
    guard number >= 0 else {
      let error = errno
      if error == ENOTDIR { throw StorageError.posix(error, "\(path) is a file, not a directory") }
      throw StorageError.posix(error, "Opening the directory \(path) failed")
    }
    return FileDescriptor(owning: number, path: path)
  }

  /// Opens a file in this directory. Nil if there is none.
  func openFile(_ name: UnsafePointer<CChar>, _ flags: Int32) throws -> FileDescriptor? {
    try openNumber(name, flags).map { FileDescriptor(owning: $0, path: path(of: name)) }
  }

  /// Makes a file in this directory. Nil if the name is taken.
  func makeFile(_ name: UnsafePointer<CChar>, _ permissions: FilePermissions) throws -> FileDescriptor? {
    let mode = mode_t(permissions.fileMode)
    let number = retrying { openat(self.number, name, O_RDWR | O_CREAT | O_EXCL | Self.commonFlags, mode) }
    guard number >= 0 else {
      if errno == EEXIST { return nil }
      throw StorageError.posix(errno, "Making the file \(path(of: name)) failed")
    }
    let file = FileDescriptor(owning: number, path: path(of: name))
    try file.applyGroupMode(mode, permissions)
    return file
  }

  /// As ``openFile(_:_:)``, for the caller to own.
  func openNumber(_ name: UnsafePointer<CChar>, _ flags: Int32) throws -> Int32? {
    let number = retrying { openat(self.number, name, flags | Self.commonFlags) }
    if number >= 0 { return number }
    switch errno {
    case ENOENT: return nil
    case ELOOP, ENXIO, ENOTDIR, EISDIR, EMLINK: throw StorageError.notAFile(path(of: name))
    case let error: throw StorageError.posix(error, "Opening \(path(of: name)) failed")
    }
  }

  /// Opens a directory in this one. Nil if there is none.
  func openDirectory(_ name: UnsafePointer<CChar>) throws -> FileDescriptor? {
    let number = retrying { openat(self.number, name, O_RDONLY | O_DIRECTORY | Self.commonFlags) }
    if number >= 0 { return FileDescriptor(owning: number, path: path(of: name)) }
    switch errno {
    case ENOENT: return nil
    case ELOOP, ENOTDIR, EMLINK:
      throw StorageError(
        .corrupted, "\(path(of: name)) should be a directory, and is something else. Move it away.")
    case let error: throw StorageError.posix(error, "Opening the directory \(path(of: name)) failed")
    }
  }

  /// Makes a directory in this one. False if it is there already.
  func makeDirectory(_ name: UnsafePointer<CChar>, _ permissions: FilePermissions) throws -> Bool {
    let mode = mode_t(permissions.directoryMode)
    guard mkdirat(number, name, mode) == 0 else {
      if errno == EEXIST { return false }
      throw StorageError.posix(errno, "Making the directory \(path(of: name)) failed")
    }
    if permissions == .group { try openDirectory(name)?.applyGroupMode(mode, permissions) }
    return true
  }

  /// The process's umask may have taken away what the group is to have.
  private func applyGroupMode(_ mode: mode_t, _ permissions: FilePermissions) throws {
    guard permissions == .group, fchmod(number, mode) != 0 else { return }
    throw StorageError.posix(errno, "Setting the permissions of \(path) failed")
  }

  func path(of name: UnsafePointer<CChar>) -> String { "\(path)/\(String(cString: name))" }
}

// MARK: - Contents

extension FileDescriptor {
  /// The file's size, kind and times.
  func status() throws -> FileStatus {
    var raw = stat()
    guard fstat(number, &raw) == 0 else { throw StorageError.posix(errno, "Looking at \(path) failed") }
    return FileStatus(raw)
  }

  /// What is at the name in this directory. Nil if there is nothing. Follows no symbolic link.
  func status(of name: UnsafePointer<CChar>) throws -> FileStatus? {
    var raw = stat()
    if fstatat(number, name, &raw, AT_SYMLINK_NOFOLLOW) == 0 { return FileStatus(raw) }
    guard errno == ENOENT else { throw StorageError.posix(errno, "Looking at \(path(of: name)) failed") }
    return nil
  }

  /// The first `size` bytes, or fewer if the file has become shorter.
  func readData(size: Int) throws -> Data {
    guard size > 0 else { return Data() }
    // Not Data(count:), which ends the process if somebody left a file here that is larger than memory.
    guard let bytes = malloc(size) else {
      throw StorageError.posix(ENOMEM, "Reading \(path), which has \(size) bytes, failed")
    }
    do {
      let count = try read(into: UnsafeMutableRawBufferPointer(start: bytes, count: size))
      return Data(bytesNoCopy: bytes, count: count, deallocator: .free)
    } catch {
      free(bytes)
      throw error
    }
  }

  /// Fills the buffer from an offset in the file. Returns how much there was.
  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int = 0) throws -> Int {
    var done = 0
    while done < buffer.count {
      let rest = UnsafeMutableRawBufferPointer(rebasing: buffer[done...])
      let count = retrying { pread(number, rest.baseAddress, rest.count, off_t(offset + done)) }
      guard count >= 0 else { throw StorageError.posix(errno, "Reading \(path) failed") }
      if count == 0 { break }
      done += count
    }
    return done
  }

  /// Writes all of the bytes at an offset in the file.
  func write(_ bytes: UnsafeRawBufferPointer, at offset: Int = 0) throws {
    var done = 0
    while done < bytes.count {
      let rest = UnsafeRawBufferPointer(rebasing: bytes[done...])
      let count = retrying { pwrite(number, rest.baseAddress, rest.count, off_t(offset + done)) }
      guard count > 0 else {
        throw StorageError.posix(count == 0 ? ENOSPC : errno, "Writing \(path) failed")
      }
      done += count
    }
  }

  func setModificationTime(_ time: Timestamp) throws {
    let (seconds, rest) = time.nanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
    let value = timespec(tv_sec: Int(seconds), tv_nsec: Int(rest))
    guard futimens(number, [value, value]) == 0 else {
      throw StorageError.posix(errno, "Setting the time of \(path) failed")
    }
  }

  func truncate(to size: Int) throws {
    guard retrying({ ftruncate(number, off_t(size)) }) == 0 else {
      throw StorageError.posix(errno, "Truncating \(path) failed")
    }
  }

  /// Returns once the file, or the names in the directory, are on the disk.
  func synchronize() throws {
    #if canImport(Darwin)
      // fsync leaves the data in the drive's cache there. Not every file system has F_FULLFSYNC.
      if fcntl(number, F_FULLFSYNC) == 0 { return }
    #endif
    guard retrying({ fsync(number) }) == 0 else {
      throw StorageError.posix(errno, "Writing \(path) to the disk failed")
    }
  }
}
