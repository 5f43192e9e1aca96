#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The identity of a file or directory, independent of the path by which it was opened. As long as a
/// descriptor of it is open, no other file has the same identity.
package struct FileIdentity: Hashable, Sendable {
  private let device: UInt64
  private let number: UInt64

  package init(_ status: stat) {
    device = UInt64(truncatingIfNeeded: status.st_dev)
    number = UInt64(truncatingIfNeeded: status.st_ino)
  }

  /// The identity of the file that a descriptor has open.
  ///
  /// - Throws: ``StorageError`` with code `io`.
  package init(descriptor: Int32, path: String) throws {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else {
      throw StorageError.posix(errno, "Reading the status of \(path) failed.")
    }
    self.init(status)
  }

  /// The identity of the file that is now at the path, or nil if there is none.
  ///
  /// - Throws: ``StorageError`` that names the path.
  package init?(path: String) throws {
    var status = stat()
    guard stat(path, &status) == 0 else {
      if errno == ENOENT || errno == ENOTDIR { return nil }
      throw StorageError.posix(errno, "Reading the status of \(path) failed.")
    }
    self.init(status)
  }
}
