import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The few system calls that the engine makes besides LevelDB's own: on the files in one directory, by their names.
///
/// The directory is the one that the descriptor has open, wherever it has been moved. A symbolic link is never
/// followed, and nothing but a regular file is opened (rule O5). All methods throw `StorageError` with the path and the
/// system's reason.
struct LevelDBFiles: Sendable {
  let descriptor: Int32
  /// Where the directory was when it was opened.
  let path: String
  let permissions: FilePermissions

  /// What is there of that name, or nil.
  func status(of name: String) throws -> stat? {
    var status = stat()
    if fstatat(descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0 { return status }
    guard errno == ENOENT else { throw failure("could not be examined", name) }
    return nil
  }

  func exists(_ name: String) throws -> Bool { try status(of: name) != nil }

  /// Nil if there is no such file.
  func size(of name: String) throws -> Int? { try status(of: name).map { Int($0.st_size) } }

  /// The names in the directory, in no order.
  func names() throws -> [String] {
    // A descriptor of its own, since the stream takes it over.
    let copy = openat(descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard copy >= 0 else { throw StorageError.posix(errno, "The directory \(path) could not be read") }
    guard let stream = fdopendir(copy) else {
      let number = errno
      close(copy)
      throw StorageError.posix(number, "The directory \(path) could not be read")
    }
    defer { closedir(stream) }
    var names: [String] = []
    while true {
      errno = 0
      guard let entry = readdir(stream) else {
        guard errno == 0 else { throw StorageError.posix(errno, "The directory \(path) could not be read") }
        return names
      }
      let name = withUnsafePointer(to: &entry.pointee.d_name) { tuple in
        tuple.withMemoryRebound(to: CChar.self, capacity: MemoryLayout.size(ofValue: tuple.pointee)) {
          String(cString: $0)
        }
      }
      if name != ".", name != ".." { names.append(name) }
    }
  }

  /// The bytes of a file from an offset, as many as there are up to `count`.
  func read(_ name: String, from offset: Int = 0, count: Int? = nil) throws -> [UInt8] {
    guard let bytes = try readIfPresent(name, from: offset, count: count) else {
      throw StorageError.posix(ENOENT, "\(path)/\(name) could not be opened")
    }
    return bytes
  }

  /// The same; nil if there is no such file. LevelDB removes files at any time while it has a database open.
  func readIfPresent(_ name: String, from offset: Int = 0, count: Int? = nil) throws -> [UInt8]? {
    guard let (file, size) = try open(name, O_RDONLY) else { return nil }
    defer { close(file) }
    let wanted = max(0, count ?? size - offset)
    var number: Int32 = 0
    let bytes = [UInt8](unsafeUninitializedCapacity: wanted) { buffer, filled in
      while filled < wanted, let start = buffer.baseAddress {
        let result = pread(file, start + filled, wanted - filled, off_t(offset + filled))
        if result > 0 {
          filled += result
        } else if result == 0 {
          return
        } else if errno != EINTR {
          number = errno
          return
        }
      }
    }
    guard number == 0 else { throw StorageError.posix(number, "\(path)/\(name) could not be read") }
    return bytes
  }

  /// Puts the bytes in a file of that name: it is the old file or the new one, whatever happens meanwhile, and
  /// the new one for good once the directory is synced.
  func replace(_ name: String, with bytes: [UInt8]) throws {
    let temporary = name + ".new"
    do {
      try create(temporary, bytes)
      guard renameat(descriptor, temporary, descriptor, name) == 0 else {
        throw failure("could not be renamed", temporary)
      }
    } catch {
      unlinkat(descriptor, temporary, 0)
      throw error
    }
  }

  /// Takes room of that size on the device and gives it back.
  ///
  /// - Throws: `StorageError` with code `diskFull` if there is none.
  func reserve(_ count: Int) throws {
    let name = "STOCKROOM.room"
    defer { unlinkat(descriptor, name, 0) }
    try create(name, [UInt8](repeating: 0x5A, count: count))
  }

  /// Removes a file, durably. Its absence is no error.
  func remove(_ name: String) throws {
    if unlinkat(descriptor, name, 0) != 0 {
      guard errno == ENOENT else { throw failure("could not be removed", name) }
      return
    }
    try synchronize()
  }

  /// Cuts a file off, durably. Its absence is no error.
  func truncate(_ name: String, to size: Int) throws {
    guard let (file, _) = try open(name, O_WRONLY) else { return }
    defer { close(file) }
    guard ftruncate(file, off_t(size)) == 0 else { throw failure("could not be truncated", name) }
    try synchronize(file, name)
  }

  /// Waits until a file is on disk.
  func synchronize(_ name: String) throws {
    guard let (file, _) = try open(name, O_RDONLY) else {
      throw StorageError.posix(ENOENT, "\(path)/\(name) could not be opened")
    }
    defer { close(file) }
    try synchronize(file, name)
  }

  /// Waits until the names in the directory are on disk.
  func synchronize() throws {
    // Some file systems cannot sync a directory, and say so with EINVAL; there is nothing more to do there.
    guard fsync(descriptor) == 0 || errno == EINVAL else {
      throw StorageError.posix(errno, "\(path) could not be synced")
    }
  }

  /// The error for a call that has just failed.
  private func failure(_ what: String, _ name: String) -> StorageError {
    .posix(errno, "\(path)/\(name) \(what)")
  }

  /// A descriptor of a regular file and its size, or nil if there is no such file. A FIFO keeps nobody waiting.
  private func open(_ name: String, _ flags: Int32) throws -> (descriptor: Int32, size: Int)? {
    let file = openat(descriptor, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
    guard file >= 0 else {
      if errno == ENOENT { return nil }
      throw failure("could not be opened", name)
    }
    var status = stat()
    guard fstat(file, &status) == 0 else {
      defer { close(file) }
      throw failure("could not be examined", name)
    }
    guard status.isRegularFile else {
      close(file)
      throw StorageError(.corrupted, "\(path)/\(name) is not a regular file.")
    }
    return (file, Int(status.st_size))
  }

  /// Makes a new file with these bytes, in place of what has that name, and waits until they are on disk.
  private func create(_ name: String, _ bytes: [UInt8]) throws {
    if unlinkat(descriptor, name, 0) != 0, errno != ENOENT { throw failure("could not be removed", name) }
    let mode = mode_t(permissions.fileMode)
    let file = openat(descriptor, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode)
    guard file >= 0 else { throw failure("could not be created", name) }
    defer { close(file) }
    // The process's umask may have taken away what the group is to have.
    if permissions != .owner, fchmod(file, mode) != 0 { throw failure("could not be shared", name) }
    try bytes.withUnsafeBytes { bytes in
      var written = 0
      while written < bytes.count, let start = bytes.baseAddress {
        let result = pwrite(file, start + written, bytes.count - written, off_t(written))
        if result >= 0 {
          written += result
        } else if errno != EINTR {
          throw failure("could not be written", name)
        }
      }
    }
    try synchronize(file, name)
  }

  private func synchronize(_ file: Int32, _ name: String) throws {
    #if canImport(Darwin)
      if fcntl(file, F_FULLFSYNC) == 0 { return }
    #endif
    guard fsync(file) == 0 else { throw failure("could not be synced", name) }
  }
}

extension LevelDBFiles {
  /// Gives a file that is the process's own the permissions that it should have: LevelDB makes files for everybody, as
  /// far as the process's umask lets it.
  ///
  /// What fails is left as it is. The directory keeps others out all the same.
  func restrict(_ name: String, _ status: stat) {
    let mode = mode_t(permissions.fileMode)
    guard status.isRegularFile, status.st_mode & 0o777 != mode, status.st_uid == geteuid() else { return }
    // To open the file would not do: closing it again would release LevelDB's lock on the file LOCK.
    _ = fchmodat(descriptor, name, mode, 0)
  }
}

extension stat {
  var isRegularFile: Bool { st_mode & S_IFMT == S_IFREG }
}
