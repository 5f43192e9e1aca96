import ArgumentParser
import Dispatch
import Foundation

/// Cancels the work when somebody presses Ctrl-C, so that what is on the disk is removed, and then ends as one who was
/// interrupted.
func untilInterrupted<Result: Sendable>(
  _ work: @escaping @Sendable () async throws -> Result
) async throws -> Result {
  signal(SIGINT, SIG_IGN)
  let task = Task { try await work() }
  let source = DispatchSource.makeSignalSource(signal: SIGINT)
  source.setEventHandler { task.cancel() }
  source.activate()
  defer { source.cancel() }
  do {
    return try await task.value
  } catch is CancellationError {
    throw ExitCode(128 + SIGINT)
  }
}

/// A line on standard error that is written over and over; none if that is no terminal.
struct ProgressLine: Sendable {
  private let isShown = isatty(STDERR_FILENO) == 1

  func show(_ text: String) {
    if isShown { FileHandle.standardError.write(Data("\r\u{1B}[K\(text.prefix(100))".utf8)) }
  }

  func clear() { show("") }
}
