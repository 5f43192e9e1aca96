import StockroomCore

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

// Descriptors of the caller, which may be pipes, terminals and sockets. Their flags are not changed: other
// programs may share the non-blocking mode.
extension FileDescriptor {
  /// The number of bytes that a pipe accepts without blocking, if it accepts any (PIPE_BUF).
  static var portionWithoutWaiting: Int {
    #if canImport(Darwin)
      512
    #else
      4096
    #endif
  }

  /// Duplicates a descriptor.
  convenience init(duplicating descriptor: Int32) throws {
    let number = fcntl(descriptor, F_DUPFD_CLOEXEC, 3)
    guard number >= 0 else { throw StorageError.posix(errno, "Using descriptor \(descriptor) failed.") }
    self.init(owning: number, path: "on descriptor \(descriptor)")
  }

  /// Returns once reading or writing does not block, or fails.
  ///
  /// - Parameter event: `POLLIN` or `POLLOUT`.
  /// - Throws: `CancellationError` soon after the flag has been set.
  func wait(for event: some BinaryInteger, _ flag: CancellationFlag) throws {
    var wanted = pollfd(fd: number, events: Int16(event), revents: 0)
    var count: Int32 = 0
    repeat {
      try flag.check()
      count = poll(&wanted, 1, 100)
    } while count == 0 || count < 0 && errno == EINTR
  }
}

extension URL {
  func requireFileSystem() throws { try FileManager.Directory(url: self).validate() }
}
