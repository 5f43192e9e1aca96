import BenchmarkKit
import Dispatch
import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A signal ended the command, once it had cleaned up.
struct Interrupted: Error {
  let signal: Int32
}

/// Does the work, and cancels it at Ctrl-C and SIGTERM, so that it can clean up.
///
/// Work that has not ended a second and a half later, since an engine hangs or nobody reads its output, is left where it
/// is: its scratch directories are removed and the process ends. A second signal ends the process at once.
///
/// - Throws: ``Interrupted`` if there was a signal; otherwise what the work throws.
func cancellingOnSignal(_ work: @escaping @Sendable () async throws -> Void) async throws {
  let received = MutexProtected<Int32?>(nil)
  let task = Task { try await work() }
  let sources = [SIGINT, SIGTERM].map { number in
    // Otherwise the signal would end the process before its source sees it.
    signal(number, SIG_IGN)
    let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
    source.setEventHandler {
      let isFirst = received.withLock { received in
        defer { received = received ?? number }
        return received == nil
      }
      guard isFirst else { _exit(128 + number) }
      task.cancel()
      // On a thread of its own: work that hangs may hold all of the pool's.
      Thread.detachNewThread {
        usleep(1_500_000)
        ScratchDirectories.removeAll()
        _exit(128 + number)
      }
    }
    source.resume()
    return source
  }
  let result = await task.result
  for source in sources { source.cancel() }
  if let number = received.withLock({ $0 }) { throw Interrupted(signal: number) }
  try result.get()
}

/// The directories that are removed when a command ends, however it does.
enum ScratchDirectories {
  private static let existing = MutexProtected<[URL: ScratchDirectory]>([:])

  static func add(_ directory: ScratchDirectory) {
    existing.withLock { $0[directory.url] = directory }
  }

  /// Removes the directory.
  ///
  /// - Throws: `StorageError` that names the path and the cause.
  static func remove(_ directory: ScratchDirectory) throws {
    defer { existing.withLock { $0[directory.url] = nil } }
    try directory.remove()
  }

  /// Removes all of them, as far as that is possible: an engine that is still at work may make files meanwhile.
  static func removeAll() {
    for directory in existing.withLock({ Array($0.values) }) {
      for _ in 0..<10 where (try? directory.remove()) == nil { usleep(20_000) }
    }
  }
}
