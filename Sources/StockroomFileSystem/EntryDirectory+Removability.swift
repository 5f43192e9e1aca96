#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import StockroomCore

extension EntryDirectory {
  /// Throws the error with which the system would refuse to remove the entry's file, as far as that can be
  /// determined. Otherwise the file counts as removable, and so does one that is absent.
  func checkRemovable(_ name: FileName) throws {
    let _: Bool? = try withParent(of: name) { parent, file -> Bool? in
      var status = stat()
      guard fstatat(parent.number, file, &status, AT_SYMLINK_NOFOLLOW) == 0 else { return nil }
      if let error = parent.refusalToRemove(file, status) {
        throw StorageError.posix(error, "\(path(of: name)) cannot be removed.")
      }
      return true
    }
  }
}

extension FileDescriptor {
  /// The error with which removing a file of this directory would fail, if it can be determined.
  fileprivate func refusalToRemove(_ name: UnsafePointer<CChar>, _ file: stat) -> Int32? {
    if faccessat(number, ".", W_OK | X_OK, AT_EACCESS) != 0 {
      let error = errno
      if [EACCES, EPERM, EROFS].contains(error) { return error }
    }
    var directory = stat()
    guard fstat(number, &directory) == 0 else { return nil }
    let user = geteuid()
    // In a sticky directory only the owners of it and of the file may remove the file.
    if directory.st_mode & 0o1000 != 0, user != 0, user != directory.st_uid, user != file.st_uid {
      return EPERM
    }
    return isProtected(directory) || isProtected(name, file) ? EPERM : nil
  }

  #if os(Linux)
    private func isProtected(_: stat) -> Bool { Self.hasProtectingFlags(number) }

    private func isProtected(_ name: UnsafePointer<CChar>, _: stat) -> Bool {
      guard let file = try? openFile(name, O_RDONLY) else { return false }
      return withExtendedLifetime(file) { Self.hasProtectingFlags(file.number) }
    }

    private static func hasProtectingFlags(_ descriptor: Int32) -> Bool {
      var flags = 0
      // FS_IOC_GETFLAGS, FS_APPEND_FL and FS_IMMUTABLE_FL, which are macros. Not every file system has them.
      return ioctl(descriptor, 0x8008_6601, &flags) == 0 && flags & 0x30 != 0
    }
  #else
    private func isProtected(_ directory: stat) -> Bool { Self.hasProtectingFlags(directory) }

    private func isProtected(_: UnsafePointer<CChar>, _ file: stat) -> Bool { Self.hasProtectingFlags(file) }

    private static func hasProtectingFlags(_ status: stat) -> Bool {
      #if canImport(Darwin)
        // The flags for append-only and immutable files, of the owner and of the system.
        return status.st_flags & 0x0006_0006 != 0
      #else
        return false
      #endif
    }
  #endif
}
