#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The result of `stat` for a file, independent of the path by which it was opened.
package struct FileStatus: Sendable {
  package let isRegularFile: Bool
  package let isDirectory: Bool
  package let isSymbolicLink: Bool
  package let size: Int
  /// The permission bits.
  package let mode: UInt16
  /// Whether the set-group-ID bit is set, by which files created in a directory get its group.
  package let setsGroup: Bool
  package let owner: uid_t
  package let group: gid_t
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
      throw StorageError.posix(errno, "Reading the status of \(path) failed.")
    }
    self.init(raw)
  }

  package init(_ raw: stat) {
    isRegularFile = raw.st_mode & S_IFMT == S_IFREG
    isDirectory = raw.st_mode & S_IFMT == S_IFDIR
    isSymbolicLink = raw.st_mode & S_IFMT == S_IFLNK
    size = Int(raw.st_size)
    mode = UInt16(truncatingIfNeeded: raw.st_mode & 0o777)
    setsGroup = raw.st_mode & 0o2000 != 0
    (owner, group) = (raw.st_uid, raw.st_gid)
    #if canImport(Darwin)
      (modified, changed) = (Timestamp(clamping: raw.st_mtimespec), Timestamp(clamping: raw.st_ctimespec))
    #else
      (modified, changed) = (Timestamp(clamping: raw.st_mtim), Timestamp(clamping: raw.st_ctim))
    #endif
    linkCount = Int(raw.st_nlink)
    identity = FileIdentity(raw)
  }
}
