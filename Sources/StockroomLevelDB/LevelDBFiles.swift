import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The files in one directory, by their names: the operations of the engine in addition to LevelDB's.
///
/// The descriptor identifies the directory, even if it has been moved. Only regular files are opened (rule O5). All
/// methods throw `StorageError` with the path and the system's reason.
struct LevelDBFiles: Sendable {
  let directory: FileDescriptor
  let permissions: FilePermissions

  var descriptor: Int32 { directory.number }
  /// The path of the directory when it was opened.
  var path: String { directory.path }

  /// The status of the file with this name, or nil.
  func status(of name: String) throws -> FileStatus? { try directory.status(of: name) }

  func exists(_ name: String) throws -> Bool { try status(of: name) != nil }

  /// Nil if there is no such file.
  func size(of name: String) throws -> Int? { try status(of: name)?.size }

  /// The total size of the existing files among these.
  func size(of names: [String]) throws -> Int { try names.reduce(0) { try $0 + (size(of: $1) ?? 0) } }

  /// The names in the directory, in no particular order.
  func names() throws -> [String] {
    var names: [String] = []
    try directory.forEachName { name, _ in names.append(String(cString: name)) }
    return names
  }

  /// The bytes of a file from an offset, at most `count`.
  func read(_ name: String, from offset: Int = 0, count: Int? = nil) throws -> [UInt8] {
    guard let bytes = try readIfPresent(name, from: offset, count: count) else { throw missing(name) }
    return bytes
  }

  /// Like ``read(_:from:count:)``, but returns nil if there is no such file. LevelDB may remove files at any time while
  /// it has a database open.
  func readIfPresent(_ name: String, from offset: Int = 0, count: Int? = nil) throws -> [UInt8]? {
    guard let (file, size) = try open(name, O_RDONLY) else { return nil }
    let bytes = try file.readBytes(max(0, count ?? size - offset), at: offset)
    if count == nil { try Self.checkCount(bytes.count, size - offset, of: file) }
    return bytes
  }

  /// Throws `io` if a read has returned only a part of the file. Recovery would treat the missing end of a log as never
  /// written, and truncate the log there.
  private static func checkCount(_ found: Int, _ expected: Int, of file: FileDescriptor) throws {
    if found >= expected { return }
    throw StorageError(.io, "Of the \(expected) bytes of \(file.path) only \(found) could be read.")
  }

  /// The last bytes of a file, at most `count`, and the size of the file; nil if there is no such file.
  func readEnd(of name: String, count: Int) throws -> (bytes: [UInt8], size: Int)? {
    guard let (file, size) = try open(name, O_RDONLY) else { return nil }
    let bytes = try file.readBytes(min(count, size), at: max(0, size - count))
    try Self.checkCount(bytes.count, min(count, size), of: file)
    return (bytes, size)
  }

  /// Writes the bytes to a file of that name. After a crash, the file has either the old contents or the new ones. The
  /// new ones are durable once the directory is synced.
  func replace(_ name: String, with bytes: [UInt8]) throws {
    let temporary = name + Self.unfinishedExtension
    do {
      try create(temporary, bytes)
      guard try directory.rename(temporary, to: name, in: directory) else { throw missing(temporary) }
    } catch {
      _ = unlinkat(descriptor, temporary, 0)
      throw error
    }
  }

  private static let unfinishedExtension = ".new"

  /// Removes the files that ``replace(_:with:)`` has not renamed because its process died. Errors are ignored: a file
  /// that is left only takes space.
  func removeUnfinished() throws {
    for name in try names() where name.hasSuffix(Self.unfinishedExtension) {
      let finished = name.dropLast(Self.unfinishedExtension.count)
      let isManifest = finished.hasPrefix("MANIFEST-") && LevelDBFileList.isNumber(finished.dropFirst(9))
      let isLog = LevelDBFileList.number(ofLog: String(finished)) != nil
      let isOwn = finished == "CURRENT" || finished.hasPrefix("STOCKROOM")
      if isOwn || isLog || isManifest { _ = unlinkat(descriptor, name, 0) }
    }
  }

  /// Reserves space of that size on the device and releases it.
  ///
  /// - Throws: `StorageError` with code `diskFull` if there is not enough.
  func reserve(_ count: Int) throws {
    defer { releaseReserve() }
    try create(Self.reserveName, [UInt8](repeating: 0x5A, count: count))
  }

  /// Releases the space that ``reserve(_:)`` has taken, which remains if its process died. Errors are ignored: a file
  /// that is left only takes space.
  func releaseReserve() { _ = unlinkat(descriptor, Self.reserveName, 0) }

  private static let reserveName = "STOCKROOM.room"

  /// Removes a file, durably. An absent file is not an error.
  func remove(_ name: String) throws {
    if try directory.removeFile(name) { try synchronize() }
  }

  /// Truncates a file, durably. An absent file is not an error.
  func truncate(_ name: String, to size: Int) throws {
    guard let (file, _) = try open(name, O_WRONLY) else { return }
    try file.truncate(to: size)
    try file.synchronize()
  }

  /// Waits until a file is on disk.
  func synchronize(_ name: String) throws {
    guard let (file, _) = try open(name, O_RDONLY) else { throw missing(name) }
    try file.synchronize()
  }

  /// Waits until the names in the directory are on disk.
  func synchronize() throws { try directory.synchronizeNames() }

  private func missing(_ name: String) -> StorageError {
    .posix(ENOENT, "Opening \(path)/\(name) failed.")
  }

  /// A regular file and its size, or nil if there is no such file.
  private func open(_ name: String, _ flags: Int32) throws -> (file: FileDescriptor, size: Int)? {
    guard let file = try directory.openFile(name, flags) else { return nil }
    let status = try file.status()
    guard status.isRegularFile else { throw StorageError.notAFile(file.path) }
    return (file, status.size)
  }

  /// Creates a file with these bytes, replacing an existing one of that name, and waits until they are on
  /// disk.
  private func create(_ name: String, _ bytes: [UInt8]) throws {
    try directory.removeFile(name)
    guard let file = try directory.makeFile(name, permissions) else {
      throw StorageError.posix(EEXIST, "Creating the file \(path)/\(name) failed.")
    }
    try bytes.withUnsafeBytes { try file.write($0) }
    try file.synchronize()
  }
}

extension LevelDBFiles {
  /// Sets the configured permissions of a file that the process owns: LevelDB creates files that are
  /// accessible to everybody, as far as the process's umask allows.
  ///
  /// Failures are ignored. The directory denies access to others anyway.
  func restrict(_ name: String, _ status: FileStatus) {
    guard status.isRegularFile, status.mode != permissions.fileMode, status.owner == geteuid() else { return }
    // Opening the file instead would release LevelDB's lock on the file LOCK when it is closed again.
    let mode = mode_t(permissions.fileMode)
    if fchmodat(descriptor, name, mode, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOTSUP { return }
    // Not every system supports this flag. `status` has just shown that the file is not a link.
    _ = fchmodat(descriptor, name, mode, 0)
  }

  /// Throws if the file is immutable: not even root may change such a file.
  ///
  /// Does not open it: closing it again would release LevelDB's lock on the file LOCK.
  func verifyMutable(_ name: String) throws {
    guard faccessat(descriptor, name, W_OK, AT_EACCESS) != 0, errno == EPERM else { return }
    throw StorageError.posix(
      EPERM, "Reopening the LevelDB database in \(path) needs to change its file \(name).")
  }
}
