import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

extension FileDescriptor {
  /// Opens the file at a path, through symbolic links if there are any, to read it. The descriptor has the
  /// path without links. Nil if it is not a regular file.
  ///
  /// - Throws: `StorageError` if it does not exist, or may not be read.
  static func openRegularFile(
    following path: String
  ) throws -> (file: FileDescriptor, status: FileStatus)? {
    guard let resolved = realpath(path, nil) else {
      throw StorageError.posix(errno, "Opening \(path) failed.")
    }
    defer { free(resolved) }
    guard let file = try openFile(atPath: String(cString: resolved), O_RDONLY),
      case let status = try file.status(), status.isRegularFile
    else { return nil }
    return (file, status)
  }
}
