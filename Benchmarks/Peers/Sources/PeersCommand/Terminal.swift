import ArgumentParser
import Dispatch
import Foundation
import Synchronization

/// Cancels the work at SIGINT, SIGTERM and SIGHUP, so that it removes its files, and then exits with the status of the signal. A
/// second signal ends the process at once, SIGHUP not counted, which a terminal that is closed may send twice. A signal that is ignored from the start stays ignored.
func untilInterrupted<Result: Sendable>(
  _ work: @escaping @Sendable () async throws -> Result
) async throws -> Result {
  let received = Mutex<Int32?>(nil)
  let task = Task { try await work() }
  let sources = [SIGINT, SIGTERM, SIGHUP].compactMap { number -> (any DispatchSourceSignal)? in
    let earlier = signal(number, SIG_IGN)
    if unsafeBitCast(earlier, to: Int.self) == unsafeBitCast(SIG_IGN, to: Int.self) { return nil }
    let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
    source.setEventHandler {
      let isSecond = received.withLock { received in
        defer { if received == nil || received == SIGHUP { received = number } }
        return received != nil && received != SIGHUP && number != SIGHUP
      }
      if isSecond { _exit(128 + number) }
      task.cancel()
    }
    source.activate()
    return source
  }
  defer { for source in sources { source.cancel() } }
  do {
    return try await task.value
  } catch is CancellationError {
    throw ExitCode(128 + (received.withLock { $0 } ?? SIGINT))
  }
}

/// A line on standard error that is overwritten. Shows nothing if standard error is not a terminal.
struct ProgressLine: Sendable {
  private let isShown = isatty(STDERR_FILENO) == 1

  func show(_ text: String) {
    if isShown { FileHandle.standardError.write(Data("\r\u{1B}[K\(text.prefix(100))".utf8)) }
  }

  func clear() { show("") }
}
