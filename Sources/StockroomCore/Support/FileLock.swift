#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// An advisory lock on an open file, which every descriptor of its own can have: `flock`.
package enum FileLock {
  /// How long an engine waits for another process, by default.
  package static let defaultTimeout = Duration.seconds(60)

  /// Takes the exclusive lock, and waits for it on this thread for as long as `timeout`. Every process that
  /// may read a file can lock it, so the wait has an end (rule O5).
  ///
  /// - Parameter end: When the wait is over, if it has begun before.
  /// - Throws: ``StorageError`` with code `locked` if another process has the lock all that time, `io` if the file
  ///   system has no locks.
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

  /// Takes the exclusive lock, if it is free.
  ///
  /// - Throws: ``StorageError`` with code `io` if the file system has no locks.
  package static func tryAcquire(_ descriptor: Int32, path: String) throws -> Bool {
    while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
      if errno == EWOULDBLOCK { return false }
      guard errno == EINTR else { throw StorageError.posix(errno, "Locking \(path) failed.") }
    }
    return true
  }

  /// Releases the lock. To close the descriptor would not do: a child between fork and exec has a copy, which would
  /// keep the lock.
  package static func release(_ descriptor: Int32) { _ = flock(descriptor, LOCK_UN) }
}
