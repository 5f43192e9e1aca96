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
  /// The absolute path, as for system calls and messages: without a trailing slash.
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
    guard url.isFileURL else { throw StorageError(.unsupported, "\(url) is not on a file system.") }
    try Self.make(path, permissions, withParents: true)
  }

  /// The path without symbolic links.
  package var resolvedPath: String {
    get throws {
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

  /// Gives a complete file its final name, durably. If there is a file of that name by now, created by
  /// another process at the same time, that one stays, and the complete one keeps its old name.
  package static func name(_ finished: String, _ path: String) throws {
    if link(finished, path) != 0, errno != EEXIST {
      // Not every file system has hard links. In that case, an empty file reserves the name until it is
      // replaced.
      let claim = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0o600)
      if claim < 0, errno == EEXIST { return }
      guard claim >= 0 else { throw StorageError.posix(errno, "Making \(path) failed.") }
      close(claim)
      guard rename(finished, path) == 0 else { throw StorageError.posix(errno, "Making \(path) failed.") }
    }
    try sync(URL(filePath: path).deletingLastPathComponent().path(percentEncoded: false))
  }

  /// The name of an incomplete file or directory with this final name: no longer than file systems allow.
  package static func unfinishedName(of name: String) -> String {
    var beginning = name
    // Of 255 bytes.
    while beginning.utf8.count > 200 { beginning.removeLast() }
    return ".\(beginning).partial-\(UUID().uuidString)"
  }

  /// The capacity in bytes of the file system that contains the path, whether used or not. Nil if it is not
  /// reported.
  package static func volumeSize(at path: String) -> Int? {
    var status = statvfs()
    guard statvfs(path, &status) == 0 else { return nil }
    let (size, isTooLarge) = UInt64(status.f_blocks).multipliedReportingOverflow(by: UInt64(status.f_frsize))
    return isTooLarge ? Int.max : Int(clamping: size)
  }

  private static func make(_ path: String, _ permissions: FilePermissions, withParents: Bool) throws {
    let parent = URL(filePath: path).deletingLastPathComponent().path(percentEncoded: false)
    let mode = mode_t(permissions.directoryMode)
    if mkdir(path, mode) == 0 {
      // The process's umask may have removed permissions of the group.
      if permissions != .owner, chmod(path, mode) != 0 {
        throw StorageError.posix(errno, "Setting the permissions of \(path) failed.")
      }
      return try syncNew(path, in: parent)
    }
    switch errno {
    case EEXIST:
      var status = stat()
      guard stat(path, &status) == 0 else { throw StorageError.posix(errno, "Looking at \(path) failed.") }
      guard status.st_mode & S_IFMT == S_IFDIR else {
        throw StorageError.posix(ENOTDIR, "\(path) is in the way of a directory.")
      }
    case ENOENT where withParents && parent.count < path.count:
      try make(parent, permissions, withParents: true)
      try make(path, permissions, withParents: false)
    case let failure:
      throw StorageError.posix(failure, "Making the directory \(path) failed.")
    }
  }

  /// Waits until a new directory is on disk. A parent that may be entered but not read cannot be synced; the
  /// directory itself can, which also writes its name in file systems with a journal.
  package static func syncNew(_ path: String, in parent: String) throws {
    do {
      try sync(parent)
    } catch let error as StorageError where error.code == .permissionDenied {
      try sync(path)
    }
  }
}
