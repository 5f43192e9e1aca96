#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import Synchronization

/// An open file or directory, closed with the last reference to it. The system calls of all engines are here,
/// so that all are made with the same precautions: no symbolic link is followed in the last component of a
/// path, a file that another user has replaced cannot make a call block (rule O5), no child process inherits
/// a descriptor, and calls are repeated after signals.
package final class FileDescriptor: Sendable {
  private let descriptor: Atomic<Int32>
  private let directory: String
  private let components: [UInt8]

  package init(owning descriptor: Int32, path: String) {
    self.descriptor = Atomic(descriptor)
    directory = path
    components = []
  }

  /// A file below a directory.
  ///
  /// - Parameter components: The components of the path from the directory on, each terminated by a zero
  ///   byte. The path is only assembled when it is needed, which is rare.
  package init(owning descriptor: Int32, components: [UInt8], below directory: String) {
    self.descriptor = Atomic(descriptor)
    self.directory = directory
    self.components = components
  }

  deinit { release() }

  /// The path of the file when it was opened, for messages.
  package var path: String {
    if components.isEmpty { return directory }
    let slash = UInt8(ascii: "/")
    return directory + "/"
      + String(decoding: components.dropLast().map { $0 == 0 ? slash : $0 }, as: UTF8.self)
  }

  package func path(of name: UnsafePointer<CChar>) -> String { "\(path)/\(String(cString: name))" }

  /// The number for system calls. Negative once it has been released, so that system calls fail.
  package var number: Int32 { descriptor.load(ordering: .relaxed) }

  /// Closes the file. It must not be in use. May be called twice.
  package func release() {
    let number = descriptor.exchange(-1, ordering: .acquiringAndReleasing)
    if number >= 0 { _ = close(number) }
  }
}

// MARK: - Opening by path

extension FileDescriptor {
  private static let commonFlags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC

  /// Opens the directory at the path.
  ///
  /// - Parameter followsLink: Whether the path may be a symbolic link, such as one that the user has
  ///   specified.
  package static func openDirectory(atPath path: String, followsLink: Bool = true) throws -> FileDescriptor {
    let flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (followsLink ? 0 : O_NOFOLLOW)
    let number = retrying { open(path, flags) }
    guard number >= 0 else {
      if errno == ENOTDIR { throw StorageError.posix(errno, "\(path) is a file, not a directory.") }
      throw StorageError.posix(errno, "Opening the directory \(path) failed.")
    }
    return FileDescriptor(owning: number, path: path)
  }

  /// Opens a regular file, for reading and writing unless the flags say otherwise. Nil if there is none.
  package static func openFile(atPath path: String, _ flags: Int32 = O_RDWR) throws -> FileDescriptor? {
    try openNumber(path, AT_FDCWD, flags, path).map { FileDescriptor(owning: $0, path: path) }
  }

  /// Creates a file. Nil if the name is taken.
  package static func makeFile(atPath path: String, _ permissions: FilePermissions) throws -> FileDescriptor?
  {
    try makeFile(path, AT_FDCWD, permissions, path)
  }

  private static func openNumber(
    _ name: UnsafePointer<CChar>, _ directory: Int32, _ flags: Int32, _ path: @autoclosure () -> String
  ) throws -> Int32? {
    let number = retrying { openat(directory, name, flags | commonFlags) }
    if number >= 0 { return number }
    switch errno {
    case ENOENT: return nil
    case ELOOP, ENXIO, ENOTDIR, EISDIR, EMLINK: throw StorageError.notAFile(path())
    case let error: throw StorageError.posix(error, "Opening \(path()) failed.")
    }
  }

  private static func makeFile(
    _ name: UnsafePointer<CChar>, _ directory: Int32, _ permissions: FilePermissions,
    _ path: @autoclosure () -> String
  ) throws -> FileDescriptor? {
    let flags = O_RDWR | O_CREAT | O_EXCL | commonFlags
    let number = retrying { openat(directory, name, flags, mode_t(permissions.fileMode)) }
    guard number >= 0 else {
      if errno == EEXIST { return nil }
      throw StorageError.posix(errno, "Creating the file \(path()) failed.")
    }
    let file = FileDescriptor(owning: number, path: path())
    if permissions != .owner { try file.setMode(permissions.fileMode) }
    return file
  }
}

// MARK: - In a directory

extension FileDescriptor {
  /// Opens a file in this directory. Nil if there is none.
  package func openFile(_ name: UnsafePointer<CChar>, _ flags: Int32) throws -> FileDescriptor? {
    try openNumber(name, flags).map { FileDescriptor(owning: $0, path: path(of: name)) }
  }

  /// Like ``openFile(_:_:)``, but the caller owns the descriptor.
  package func openNumber(_ name: UnsafePointer<CChar>, _ flags: Int32) throws -> Int32? {
    try Self.openNumber(name, number, flags, path(of: name))
  }

  /// Creates a file in this directory. Nil if the name is taken.
  package func makeFile(
    _ name: UnsafePointer<CChar>, _ permissions: FilePermissions
  ) throws -> FileDescriptor? {
    try Self.makeFile(name, number, permissions, path(of: name))
  }

  /// Opens a directory in this one. Nil if there is none.
  package func openDirectory(_ name: UnsafePointer<CChar>) throws -> FileDescriptor? {
    let number = retrying { openat(self.number, name, O_RDONLY | O_DIRECTORY | Self.commonFlags) }
    if number >= 0 { return FileDescriptor(owning: number, path: path(of: name)) }
    switch errno {
    case ENOENT: return nil
    case ELOOP, ENOTDIR, EMLINK:
      throw StorageError(
        .corrupted, "\(path(of: name)) should be a directory, and is something else. Move it away.")
    case let error: throw StorageError.posix(error, "Opening the directory \(path(of: name)) failed.")
    }
  }

  /// Creates a directory in this one. False if it already exists.
  package func makeDirectory(_ name: UnsafePointer<CChar>, _ permissions: FilePermissions) throws -> Bool {
    guard mkdirat(number, name, mode_t(permissions.directoryMode)) == 0 else {
      if errno == EEXIST { return false }
      throw StorageError.posix(errno, "Creating the directory \(path(of: name)) failed.")
    }
    if permissions != .owner, let directory = try openDirectory(name) {
      // Keeps the set-group-ID bit, by which files created in the directory get its group.
      let groupBit = try directory.status().setsGroup ? UInt16(0o2000) : 0
      try directory.setMode(permissions.directoryMode | groupBit)
    }
    return true
  }

  /// Renames a file, replacing an existing one. False if it is absent.
  package func rename(
    _ name: UnsafePointer<CChar>, to new: UnsafePointer<CChar>, in directory: FileDescriptor
  ) throws -> Bool {
    if renameat(number, name, directory.number, new) == 0 { return true }
    if errno == ENOENT { return false }
    throw StorageError.posix(errno, "Renaming \(path(of: name)) to \(directory.path(of: new)) failed.")
  }

  /// Gives a file a second name. False if the file system does not support that, or not for this file.
  package func link(_ name: UnsafePointer<CChar>, to second: UnsafePointer<CChar>) throws -> Bool {
    if linkat(number, name, number, second, 0) == 0 { return true }
    if [EPERM, ENOTSUP, EOPNOTSUPP, ENOSYS, EMLINK].contains(errno) { return false }
    throw StorageError.posix(errno, "Linking \(path(of: name)) to \(path(of: second)) failed.")
  }

  /// Removes a file. False if it is absent.
  @discardableResult
  package func removeFile(_ name: UnsafePointer<CChar>) throws -> Bool {
    if unlinkat(number, name, 0) == 0 { return true }
    if errno == ENOENT { return false }
    throw StorageError.posix(errno, "Removing \(path(of: name)) failed.")
  }

  /// The status of the file with this name. Nil if there is none. Follows no symbolic link.
  package func status(of name: UnsafePointer<CChar>) throws -> FileStatus? {
    var raw = stat()
    if fstatat(number, name, &raw, AT_SYMLINK_NOFOLLOW) == 0 { return FileStatus(raw) }
    guard errno == ENOENT else {
      throw StorageError.posix(errno, "Reading the status of \(path(of: name)) failed.")
    }
    return nil
  }

  /// Calls `body` with every name in the directory, and its kind in the listing (`DT_…`).
  package func forEachName(_ body: (UnsafePointer<CChar>, UInt8) throws -> Void) throws {
    // A separate file description, since the position in the listing belongs to it.
    let copy = retrying { openat(number, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
    guard copy >= 0 else { throw StorageError.posix(errno, "Listing \(path) failed.") }
    guard let stream = fdopendir(copy) else {
      let error = errno
      _ = close(copy)
      throw StorageError.posix(error, "Listing \(path) failed.")
    }
    defer { closedir(stream) }
    while true {
      errno = 0
      guard let entry = readdir(stream) else {
        guard errno == 0 else { throw StorageError.posix(errno, "Listing \(path) failed.") }
        return
      }
      let kind = entry.pointee.d_type
      // Accessed through a raw pointer, since the record is shorter than its type.
      let offset = MemoryLayout<dirent>.offset(of: \.d_name) ?? 0
      let name = (UnsafeRawPointer(entry) + offset).assumingMemoryBound(to: CChar.self)
      if strcmp(name, ".") != 0, strcmp(name, "..") != 0 { try body(name, kind) }
    }
  }
}
