import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

extension FileDescriptor {
  /// Opens the file to which a path leads, through symbolic links or not, to read it. The descriptor has the path without links. Nil if
  /// it is no regular file.
  ///
  /// - Throws: `StorageError` if there is nothing, or it may not be read.
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
