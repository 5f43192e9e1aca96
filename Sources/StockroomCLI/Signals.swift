import Dispatch
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A signal told the process to end, which it does once it has cleaned up.
struct Interrupted: Error {
  let signal: Int32
}

/// Does the work, and cancels it when the process is told to end (Ctrl-C, SIGTERM), so that it can clean up.
///
/// A second signal ends the process at once.
///
/// - Throws: ``Interrupted`` if there was a signal; otherwise what the work throws.
func cancellingOnSignal(_ work: @escaping @Sendable () async throws -> Void) async throws {
  let received = Guarded<Int32?>(nil)
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
      if isFirst { task.cancel() } else { _exit(128 + number) }
    }
    source.resume()
    return source
  }
  let result = await task.result
  for source in sources { source.cancel() }
  if let number = received.withLock({ $0 }) { throw Interrupted(signal: number) }
  try result.get()
}
