import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A lock on a file, which lasts as long as this object.
final class FileLock: Sendable {
  private let descriptor: Int32

  /// - Throws: `StorageError` with code `locked` if somebody else, in this process or another, has the lock.
  init(at url: URL) throws {
    descriptor = open(url.path, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
    guard descriptor >= 0 else { throw Self.error(errno, url) }
    guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
      let number = errno
      close(descriptor)
      throw Self.error(number, url)
    }
  }

  deinit {
    // A child process that is just being started has a copy of the descriptor, which would keep the lock.
    _ = flock(descriptor, LOCK_UN)
    close(descriptor)
  }

  private static func error(_ number: Int32, _ url: URL) -> StorageError {
    let code: StorageError.Code =
      switch number {
      case EWOULDBLOCK: .locked
      case EROFS: .readOnly
      case EACCES, EPERM: .permissionDenied
      case ENOSPC: .diskFull
      default: .io
      }
    return StorageError(code, "Locking \(url.path) failed: \(String(cString: strerror(number))).")
  }
}
