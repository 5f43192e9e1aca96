import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// What was the standard output of a process that a kit has started, for answers alone.
package final class AnswerChannel: Sendable {
  /// The one of this process. Its first use sends what else is printed to standard error.
  package static let shared = AnswerChannel()

  /// The lines that come from the parent on standard input. The process ends with them, whatever it is doing.
  package static func requests() -> AsyncStream<String> {
    let (stream, continuation) = AsyncStream<String>.makeStream()
    Thread.detachNewThread {
      while let line = readLine() { continuation.yield(line) }
      // At once, without the cleaning up of libraries whose threads are still at work.
      _exit(0)
    }
    return stream
  }

  private let descriptor: MutexProtected<Int32>

  private init() {
    descriptor = MutexProtected(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3))
    dup2(STDERR_FILENO, STDOUT_FILENO)
  }

  /// Writes a line: with one call of the system, so that a process which is killed never leaves half a line, unless it
  /// is longer than a pipe holds.
  ///
  /// - Throws: ``ParentDisconnected`` if that fails.
  package func send(_ line: String) throws {
    let bytes = Array((line + "\n").utf8)
    try descriptor.withLock { descriptor in
      var written = 0
      while written < bytes.count {
        let count = bytes.withUnsafeBytes {
          write(descriptor, $0.baseAddress.map { $0 + written }, bytes.count - written)
        }
        if count < 0, errno != EINTR {
          throw ParentDisconnected(error: .posix(errno, "Answering the parent process failed"))
        }
        written += max(0, count)
      }
    }
  }
}

/// Nobody reads the answers any more.
package struct ParentDisconnected: Error {
  package let error: StorageError
}
