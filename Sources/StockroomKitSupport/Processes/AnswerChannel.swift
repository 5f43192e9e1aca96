import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The original standard output of a process that a kit has started, reserved for answers.
package final class AnswerChannel: Sendable {
  /// The channel of this process. Its first use redirects all other output to standard error.
  package static let shared = AnswerChannel()

  /// The lines that the parent sends to standard input. When standard input ends, the process exits immediately, without cleanup.
  package static func requests() -> AsyncStream<String> {
    let (stream, continuation) = AsyncStream<String>.makeStream()
    Thread.detachNewThread {
      while let line = readLine() { continuation.yield(line) }
      // Not `exit`, which runs cleanup code of libraries whose threads are still running.
      _exit(0)
    }
    return stream
  }

  private let descriptor: MutexProtected<Int32>

  private init() {
    descriptor = MutexProtected(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3))
    dup2(STDERR_FILENO, STDOUT_FILENO)
  }

  /// Writes a line, normally with one system call. A process that is killed while the call waits for space may leave a partial
  /// line, which the reader discards.
  ///
  /// - Throws: ``ParentDisconnected`` if the write fails.
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

/// Thrown if the parent no longer reads the answers.
package struct ParentDisconnected: Error {
  package let error: StorageError
}
