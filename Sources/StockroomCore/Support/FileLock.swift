#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// An advisory lock on an open file: `flock`. It belongs to a descriptor, so it also excludes other descriptors of the same
/// process that were opened separately.
package enum FileLock {
  /// The default time for which an engine waits for another process.
  package static let defaultTimeout = Duration.seconds(60)

  /// Acquires the exclusive lock, and blocks this thread for at most `timeout`. Every process that may read a
  /// file can lock it, so the wait is limited (rule O5).
  ///
  /// - Parameter end: The end of the wait, if it has begun before.
  /// - Throws: ``StorageError`` with code `locked` if another process holds the lock for all that time, `io`
  ///   if the file system does not support locks.
  package static func acquire(
    _ descriptor: Int32, path: String, timeout: Duration, until end: ContinuousClock.Instant? = nil
  ) throws {
    let end = end ?? .now + timeout
    var pause: UInt32 = 50
    while !(try tryAcquire(descriptor, path: path)) {
      guard ContinuousClock.now < end else {
        throw StorageError(.locked, "Another process has kept \(path) locked for \(timeout).")
      }
      usleep(pause)
      pause = min(2 * pause, 5_000)
    }
  }

  /// Acquires the exclusive lock, if it is free.
  ///
  /// - Throws: ``StorageError`` with code `io` if the file system does not support locks.
  package static func tryAcquire(_ descriptor: Int32, path: String) throws -> Bool {
    while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
      if errno == EWOULDBLOCK { return false }
      guard errno == EINTR else { throw StorageError.posix(errno, "Locking \(path) failed.") }
    }
    return true
  }

  /// Releases the lock. Closing the descriptor would not suffice: a child between fork and exec has a copy,
  /// which would keep the lock.
  package static func release(_ descriptor: Int32) { _ = flock(descriptor, LOCK_UN) }
}
