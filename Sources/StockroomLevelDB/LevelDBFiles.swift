import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The few system calls that the engine makes besides LevelDB's own. All of them throw `StorageError` with the
/// path and the system's reason.
enum LevelDBFiles {
  /// Whether there is anything of that name. A name that cannot be looked up counts as absent.
  static func exists(_ path: String) -> Bool {
    var status = stat()
    return lstat(path, &status) == 0
  }

  /// Nil if there is no such file.
  static func size(of path: String) throws -> Int? {
    var status = stat()
    if stat(path, &status) == 0 { return Int(status.st_size) }
    guard errno == ENOENT else { throw StorageError.posix(errno, "\(path) could not be examined") }
    return nil
  }

  /// The names in a directory, in no order.
  static func names(in directory: String) throws -> [String] {
    guard let stream = opendir(directory) else {
      throw StorageError.posix(errno, "The directory \(directory) could not be read")
    }
    defer { closedir(stream) }
    var names: [String] = []
    while true {
      errno = 0
      guard let entry = readdir(stream) else {
        guard errno == 0 else {
          throw StorageError.posix(errno, "The directory \(directory) could not be read")
        }
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
  static func read(_ path: String, from offset: Int = 0, count: Int? = nil) throws -> [UInt8] {
    guard let bytes = try readIfPresent(path, from: offset, count: count) else {
      throw StorageError.posix(ENOENT, "\(path) could not be opened")
    }
    return bytes
  }

  /// The same; nil if there is no such file. LevelDB removes files at any time while it has a database open.
  static func readIfPresent(_ path: String, from offset: Int = 0, count: Int? = nil) throws -> [UInt8]? {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else {
      guard errno == ENOENT else { throw StorageError.posix(errno, "\(path) could not be opened") }
      return nil
    }
    defer { close(descriptor) }
    var status = stat()
    guard fstat(descriptor, &status) == 0 else {
      throw StorageError.posix(errno, "\(path) could not be examined")
    }
    let wanted = max(0, count ?? Int(status.st_size) - offset)
    var failure: Int32 = 0
    let bytes = [UInt8](unsafeUninitializedCapacity: wanted) { buffer, filled in
      while filled < wanted, let start = buffer.baseAddress {
        let result = pread(descriptor, start + filled, wanted - filled, off_t(offset + filled))
        if result > 0 {
          filled += result
        } else if result == 0 {
          return
        } else if errno != EINTR {
          failure = errno
          return
        }
      }
    }
    guard failure == 0 else { throw StorageError.posix(failure, "\(path) could not be read") }
    return bytes
  }

  /// Puts the bytes in a file of that name: it is the old file or the new one, whatever happens meanwhile, and
  /// the new one for good once the directory is synced.
  static func replace(_ path: String, with bytes: [UInt8]) throws {
    let temporary = path + ".new"
    do {
      try write(bytes, to: temporary)
      guard rename(temporary, path) == 0 else {
        throw StorageError.posix(errno, "\(temporary) could not be renamed")
      }
    } catch {
      unlink(temporary)
      throw error
    }
  }

  /// Takes room of that size on the device and gives it back.
  ///
  /// - Throws: `StorageError` with code `diskFull` if there is none.
  static func reserve(_ count: Int, at path: String) throws {
    defer { unlink(path) }
    try write([UInt8](repeating: 0x5A, count: count), to: path)
  }

  /// Removes a file, durably. Its absence is no error.
  static func remove(_ path: String) throws {
    if unlink(path) != 0 {
      guard errno == ENOENT else { throw StorageError.posix(errno, "\(path) could not be removed") }
      return
    }
    try synchronize(parent(of: path))
  }

  /// Cuts a file off, durably. Its absence is no error.
  static func truncate(_ path: String, to size: Int) throws {
    let descriptor = open(path, O_WRONLY | O_CLOEXEC)
    guard descriptor >= 0 else {
      guard errno == ENOENT else { throw StorageError.posix(errno, "\(path) could not be opened") }
      return
    }
    defer { close(descriptor) }
    guard ftruncate(descriptor, off_t(size)) == 0 else {
      throw StorageError.posix(errno, "\(path) could not be truncated")
    }
    try synchronize(descriptor, path)
  }

  /// Waits until a file or directory is on disk.
  static func synchronize(_ path: String) throws {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { throw StorageError.posix(errno, "\(path) could not be opened") }
    defer { close(descriptor) }
    try synchronize(descriptor, path)
  }

  static func parent(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  private static func write(_ bytes: [UInt8], to path: String) throws {
    let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o666)
    guard descriptor >= 0 else { throw StorageError.posix(errno, "\(path) could not be created") }
    defer { close(descriptor) }
    try bytes.withUnsafeBytes { bytes in
      var written = 0
      while written < bytes.count, let start = bytes.baseAddress {
        #if canImport(Darwin)
          let result = Darwin.write(descriptor, start + written, bytes.count - written)
        #elseif canImport(Glibc)
          let result = Glibc.write(descriptor, start + written, bytes.count - written)
        #else
          let result = Musl.write(descriptor, start + written, bytes.count - written)
        #endif
        if result >= 0 {
          written += result
        } else if errno != EINTR {
          throw StorageError.posix(errno, "\(path) could not be written")
        }
      }
    }
    try synchronize(descriptor, path)
  }

  private static func synchronize(_ descriptor: Int32, _ path: String) throws {
    #if canImport(Darwin)
      if fcntl(descriptor, F_FULLFSYNC) == 0 { return }
    #endif
    guard fsync(descriptor) == 0 else { throw StorageError.posix(errno, "\(path) could not be synced") }
  }
}
