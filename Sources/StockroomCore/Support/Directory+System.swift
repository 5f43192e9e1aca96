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

extension FileManager.Directory {
  /// The absolute path without a trailing slash, for system calls and messages.
  package var path: String {
    var path = url.absoluteURL.path(percentEncoded: false)
    while path.count > 1, path.hasSuffix("/") { path.removeLast() }
    return path
  }

  /// Creates the directory and its missing ancestors, and waits until they are on disk (rules O1, O2, O5,
  /// W6).
  ///
  /// - Throws: ``StorageError`` that names the path that prevents this.
  package func create(_ permissions: FilePermissions = .owner) throws {
    try validate()
    try Self.make(path, permissions, withParents: true)
  }

  /// Throws unless the URL has a path that system calls can use. A path with a zero byte would end there in C, and so lead to
  /// another directory (rule K4).
  package func validate() throws {
    guard url.isFileURL else { throw StorageError(.unsupported, "\(url) is not on a file system.") }
    let path = path
    guard !path.utf8.contains(0) else {
      throw StorageError(.unsupported, "\(path.debugDescription) has a zero byte, which no path can have.")
    }
  }

  /// The path without symbolic links.
  package var resolvedPath: String {
    get throws {
      try validate()
      guard let resolved = realpath(path, nil) else {
        throw StorageError.posix(errno, "Looking for the directory \(path) failed.")
      }
      defer { free(resolved) }
      return String(cString: resolved)
    }
  }

  /// Waits until the names in a directory are on disk.
  package static func sync(_ path: String) throws {
    try FileDescriptor.openDirectory(atPath: path).synchronizeNames()
  }

  /// Gives a complete file its final name, and syncs the directory. If another process has created a file of that name in the
  /// meantime, that file stays, and the complete one keeps only its old name.
  package static func name(_ finished: String, _ path: String) throws {
    let parent = URL(filePath: path).deletingLastPathComponent().path(percentEncoded: false)
    let directory = try FileDescriptor.openDirectory(atPath: parent)
    if link(finished, path) != 0, errno != EEXIST {
      // Not every file system has hard links. A lock on the directory then keeps other processes from taking the name. It ends
      // with the process, whereas an empty file that reserves the name would remain if the process died.
      try FileLock.acquire(directory.number, path: parent, timeout: FileLock.defaultTimeout)
      defer { FileLock.release(directory.number) }
      if try FileStatus(atPath: path) == nil, rename(finished, path) != 0 {
        throw StorageError.posix(errno, "Creating \(path) failed.")
      }
    }
    try directory.synchronizeNames()
  }

  /// The temporary name of a file or directory that gets this name once it is complete. Not longer than file systems allow.
  package static func unfinishedName(of name: String) -> String {
    var beginning = name
    // File systems allow 255 bytes, of which the rest of the name takes up to 46.
    while beginning.utf8.count > 200 { beginning.removeLast() }
    return ".\(beginning).partial-\(UUID().uuidString)"
  }

  /// The capacity in bytes of the file system that contains the path, including the used space. Nil if it is not reported.
  package static func volumeSize(at path: String) -> Int? {
    var status = statvfs()
    guard statvfs(path, &status) == 0 else { return nil }
    let (size, isTooLarge) = UInt64(status.f_blocks).multipliedReportingOverflow(by: UInt64(status.f_frsize))
    return isTooLarge ? Int.max : Int(clamping: size)
  }

  /// Sets the permissions of a new directory, regardless of the process's umask. Keeps the set-group-ID bit, by which files
  /// created in it get the directory's group instead of the process's.
  static func setMode(_ mode: mode_t, ofNew path: String) throws {
    var status = stat()
    guard lstat(path, &status) == 0 else {
      throw StorageError.posix(errno, "Reading the status of \(path) failed.")
    }
    if status.st_mode & 0o777 == mode { return }
    guard chmod(path, mode | status.st_mode & 0o2000) == 0 else {
      throw StorageError.posix(errno, "Setting the permissions of \(path) failed.")
    }
  }

  private static func make(_ path: String, _ permissions: FilePermissions, withParents: Bool) throws {
    let parent = URL(filePath: path).deletingLastPathComponent().path(percentEncoded: false)
    let mode = mode_t(permissions.directoryMode)
    if mkdir(path, mode) == 0 {
      // The process's umask may have removed permissions of the group.
      if permissions != .owner { try setMode(mode, ofNew: path) }
      try syncNew(path, in: parent)
      // The parent may be new and not synced either, unless this call has just created it.
      if withParents { try syncIfNew(parent, holding: 1) }
      return
    }
    switch errno {
    case EEXIST:
      var status = stat()
      guard stat(path, &status) == 0 else {
        throw StorageError.posix(errno, "Reading the status of \(path) failed.")
      }
      guard status.st_mode & S_IFMT == S_IFDIR else {
        throw StorageError.posix(ENOTDIR, "\(path) is in the way of a directory.")
      }
      try syncIfNew(path, holding: 0)
    case ENOENT where withParents && parent.count < path.count:
      try make(parent, permissions, withParents: true)
      try make(path, permissions, withParents: false)
    case let failure:
      throw StorageError.posix(failure, "Creating the directory \(path) failed.")
    }
  }

  /// Syncs a directory that another process may have created and not synced yet, and those above it (rule W6). Each process syncs
  /// a directory before it creates anything in it, so a directory with more names than this is on disk.
  ///
  /// - Parameter count: The maximum number of names in a directory that may not be synced yet.
  private static func syncIfNew(_ path: String, holding count: Int) throws {
    let parent = URL(filePath: path).deletingLastPathComponent().path(percentEncoded: false)
    guard parent.count < path.count, try hasNoMoreNames(than: count, path) else { return }
    try syncNew(path, in: parent)
    try syncIfNew(parent, holding: 1)
  }

  /// Whether the directory has at most `limit` names. O(limit). False for a directory that this process may not list.
  private static func hasNoMoreNames(than limit: Int, _ path: String) throws -> Bool {
    struct TooMany: Error {}
    var count = 0
    do {
      try FileDescriptor.openDirectory(atPath: path).forEachName { _, _ in
        count += 1
        if count > limit { throw TooMany() }
      }
      return true
    } catch is TooMany {
      return false
    } catch let error as StorageError where error.code == .permissionDenied {
      return false
    }
  }

  /// Waits until a new directory is on disk. A parent that may be entered but not read cannot be synced. The directory itself is
  /// synced then, which also writes its name on file systems with a journal.
  package static func syncNew(_ path: String, in parent: String) throws {
    do {
      try sync(parent)
    } catch let error as StorageError where error.code == .permissionDenied {
      try sync(path)
    }
  }
}
