#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Which file or directory it is, by whatever path it was reached. As long as a descriptor of it is open, no other has
/// the same identity.
package struct FileIdentity: Hashable, Sendable {
  private let device: UInt64
  private let number: UInt64

  package init(_ status: stat) {
    device = UInt64(truncatingIfNeeded: status.st_dev)
    number = UInt64(truncatingIfNeeded: status.st_ino)
  }

  /// What a descriptor has open.
  ///
  /// - Throws: ``StorageError`` with code `io`.
  package init(descriptor: Int32, path: String) throws {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else {
      throw StorageError.posix(errno, "Looking at \(path) failed.")
    }
    self.init(status)
  }

  /// What a path leads to now, or nil if there is nothing.
  ///
  /// - Throws: ``StorageError`` that names the path.
  package init?(path: String) throws {
    var status = stat()
    guard stat(path, &status) == 0 else {
      if errno == ENOENT || errno == ENOTDIR { return nil }
      throw StorageError.posix(errno, "Looking at \(path) failed.")
    }
    self.init(status)
  }
}
