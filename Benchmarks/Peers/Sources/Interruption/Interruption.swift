import Dispatch
import Foundation
import Synchronization

/// A signal came before the work had ended.
public struct Interrupted: Error {
  /// The first signal.
  public let signal: Int32
  /// What the work has thrown since then, unless it is `CancellationError`: perhaps files that could not be removed.
  public let cause: (any Error)?
}

/// Cancels the work at SIGINT, SIGTERM and SIGHUP, so that it removes its files, and waits for its end. A second signal ends the
/// process at once, SIGHUP not counted, which a terminal that is closed may send twice. A signal that is ignored from the start
/// stays ignored.
///
/// - Throws: ``Interrupted`` if there was a signal, even if the work did not notice that it was cancelled; otherwise what the work
///   throws.
public func untilInterrupted<Result: Sendable>(
  _ work: @escaping @Sendable () async throws -> Result
) async throws -> Result {
  let received = ReceivedSignals()
  let (registrations, registration) = AsyncStream<Never>.makeStream()
  let task = Task {
    // A signal that comes earlier ends the process, which has done nothing yet.
    for await _ in registrations {}
    try Task.checkCancellation()
    return try await work()
  }
  var sources: [any DispatchSourceSignal] = []
  for number in [SIGINT, SIGTERM, SIGHUP] where !isIgnored(number) {
    let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
    source.setEventHandler {
      if received.add(number) { _exit(128 + number) }
      task.cancel()
    }
    await withCheckedContinuation { continuation in
      source.setRegistrationHandler { continuation.resume() }
      source.activate()
    }
    #if canImport(Darwin)
      // Otherwise the signal ends the process although its source sees it.
      signal(number, SIG_IGN)
    #endif
    sources.append(source)
  }
  registration.finish()
  let result = await task.result
  for source in sources { source.cancel() }
  guard let number = received.first else { return try result.get() }
  var cause: (any Error)?
  if case .failure(let error) = result, !(error is CancellationError) { cause = error }
  throw Interrupted(signal: number, cause: cause)
}

private final class ReceivedSignals: Sendable {
  /// The first one, and the last one that counts.
  private let state = Mutex<(first: Int32?, counted: Int32?)>((nil, nil))

  var first: Int32? { state.withLock { $0.first } }

  /// Adds a signal. Returns whether it is the second one.
  func add(_ number: Int32) -> Bool {
    state.withLock { state in
      let isSecond = state.counted != nil && number != SIGHUP
      if state.first == nil { state.first = number }
      if number != SIGHUP { state.counted = number }
      return isSecond
    }
  }
}

/// Whether the process has been started with the signal ignored.
private func isIgnored(_ number: Int32) -> Bool {
  let handler = signal(number, SIG_DFL)
  let isIgnored = unsafeBitCast(handler, to: Int.self) == unsafeBitCast(SIG_IGN, to: Int.self)
  if isIgnored { signal(number, SIG_IGN) }
  return isIgnored
}
