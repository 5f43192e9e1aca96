#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Repeats a system call while it is interrupted by signals.
package func retrying<Result: SignedInteger>(_ call: () -> Result) -> Result {
  while true {
    let result = call()
    if result >= 0 || errno != EINTR { return result }
  }
}

/// The result of `stat` for a file, independent of the path by which it was opened.
package struct FileStatus: Sendable {
  package let isRegularFile: Bool
  package let isDirectory: Bool
  package let isSymbolicLink: Bool
  package let size: Int
  /// The permission bits.
  package let mode: UInt16
  package let owner: uid_t
  package let modified: Timestamp
  /// The time of the last change of anything about the file or directory, which no program can set.
  package let changed: Timestamp
  /// The number of names of the file.
  package let linkCount: Int
  package let identity: FileIdentity

  /// The status of the file at the path, without following a symbolic link in its last component. Nil if
  /// there is none.
  ///
  /// - Throws: ``StorageError`` that names the path.
  package init?(atPath path: String) throws {
    var raw = stat()
    guard lstat(path, &raw) == 0 else {
      if errno == ENOENT { return nil }
      throw StorageError.posix(errno, "Looking at \(path) failed.")
    }
    self.init(raw)
  }

  package init(_ raw: stat) {
    isRegularFile = raw.st_mode & S_IFMT == S_IFREG
    isDirectory = raw.st_mode & S_IFMT == S_IFDIR
    isSymbolicLink = raw.st_mode & S_IFMT == S_IFLNK
    size = Int(raw.st_size)
    mode = UInt16(truncatingIfNeeded: raw.st_mode & 0o777)
    owner = raw.st_uid
    #if canImport(Darwin)
      (modified, changed) = (Timestamp(raw.st_mtimespec), Timestamp(raw.st_ctimespec))
    #else
      (modified, changed) = (Timestamp(raw.st_mtim), Timestamp(raw.st_ctim))
    #endif
    linkCount = Int(raw.st_nlink)
    identity = FileIdentity(raw)
  }
}

extension Timestamp {
  /// No overflow for any plausible time that a file system can store (until 2262).
  package init(_ time: timespec) {
    self.init(
      nanoseconds: Int64(time.tv_sec).multipliedReportingOverflow(by: 1_000_000_000).partialValue
        &+ Int64(time.tv_nsec))
  }
}

extension StorageError {
  /// The error for something that is not a regular file, but has the name of one of the engine's files.
  package static func notAFile(_ path: String) -> StorageError {
    StorageError(.corrupted, "\(path) should be a regular file, and is something else. Move it away.")
  }
}
