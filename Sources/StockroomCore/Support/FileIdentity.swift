import StockroomCSupport

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

  fileprivate init(_ status: stockroom_file_status) {
    (device, number) = (status.device, status.number)
  }

  /// The identity of the file that a descriptor has open.
  ///
  /// - Throws: ``StorageError`` with code `io`.
  package init(descriptor: Int32, path: String) throws {
    guard let status = UntimedFileStatus(descriptor: descriptor) else {
      throw StorageError.posix(errno, "Reading the status of \(path) failed.")
    }
    self = status.identity
  }

  /// The identity of the file that is now at the path, or nil if there is none.
  ///
  /// - Throws: ``StorageError`` that names the path.
  package init?(path: String) throws {
    guard let status = UntimedFileStatus(path: path) else {
      if errno == ENOENT || errno == ENOTDIR { return nil }
      throw StorageError.posix(errno, "Reading the status of \(path) failed.")
    }
    self = status.identity
  }
}

/// The identity and the size of a file. Unlike ``FileStatus``, it can be read before each commit at no further cost: on
/// Linux, reading the times of a file makes the next sync slower on some file systems.
package struct UntimedFileStatus: Sendable {
  package let identity: FileIdentity
  /// In bytes.
  package let size: Int

  private init(_ status: stockroom_file_status) {
    (identity, size) = (FileIdentity(status), Int(clamping: status.size))
  }

  /// The file at the path, after following symbolic links. If it cannot be read, the result is nil, and `errno` is the
  /// reason.
  package init?(path: String) {
    var status = stockroom_file_status()
    guard stockroom_status_of_path(path, &status) == 0 else { return nil }
    self.init(status)
  }

  /// The file that the descriptor has open. If it cannot be read, the result is nil, and `errno` is the reason.
  package init?(descriptor: Int32) {
    var status = stockroom_file_status()
    guard stockroom_status_of_descriptor(descriptor, &status) == 0 else { return nil }
    self.init(status)
  }
}
