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

/// A signal came before the work had ended.
///
/// Public only because Benchmarks/Peers, a separate package, uses it. Not meant for other users.
public struct SignalReceived: Error {
  /// The first signal; if that is SIGHUP, the first other one.
  public let signal: Int32
  /// The error that the work has thrown since the signal, for instance because files could not be removed. Nil if it
  /// has thrown none, or a `CancellationError`.
  public let cause: (any Error)?
}

/// Runs the work, and returns when it has ended. SIGINT, SIGTERM and SIGHUP cancel it, so that it can clean up. A
/// second signal ends the process immediately, except that SIGHUP is not counted for this: a terminal that is closed
/// may send it twice, or together with SIGTERM. A signal that the process ignores from its start, such as SIGHUP under
/// `nohup` and SIGINT in the background of a script, stays ignored.
///
/// Public only because Benchmarks/Peers, a separate package, uses it. Not meant for other users.
///
/// - Parameters:
///   - onSignal: Called with the first signal, after the work has been cancelled.
///   - work: Starts once the handlers of the signals are installed.
/// - Throws: ``SignalReceived`` if there was a signal, even if the work did not notice that it was cancelled; otherwise
///   what the work throws.
public func untilInterrupted<Result: Sendable>(
  onSignal: @escaping @Sendable (Int32) -> Void = { _ in },
  _ work: @escaping @Sendable () async throws -> Result
) async throws -> Result {
  let received = MutexProtected<Int32?>(nil)
  let (registrations, registration) = AsyncStream<Never>.makeStream()
  let task = Task {
    // Waits until the handlers of the signals are installed. An earlier signal ends the process, which has done nothing
    // yet.
    for await _ in registrations {}
    try Task.checkCancellation()
    return try await work()
  }
  var sources: [any DispatchSourceSignal] = []
  for number in [SIGINT, SIGTERM, SIGHUP] where !isIgnored(number) {
    let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
    source.setEventHandler {
      let (isFirst, isSecond) = received.withLock { received in
        defer { if received == nil || received == SIGHUP { received = number } }
        return (received == nil, received != nil && received != SIGHUP && number != SIGHUP)
      }
      if isSecond { _exit(128 + number) }
      guard isFirst else { return }
      task.cancel()
      onSignal(number)
    }
    await withCheckedContinuation { continuation in
      source.setRegistrationHandler { continuation.resume() }
      source.activate()
    }
    #if canImport(Darwin)
      // Otherwise the signal would end the process although the dispatch source receives it.
      signal(number, SIG_IGN)
    #endif
    sources.append(source)
  }
  registration.finish()
  let result = await task.result
  for source in sources { source.cancel() }
  guard let number = received.withLock({ $0 }) else { return try result.get() }
  var cause: (any Error)?
  if case .failure(let error) = result, !(error is CancellationError) { cause = error }
  throw SignalReceived(signal: number, cause: cause)
}

/// Whether the process was started with the signal ignored.
private func isIgnored(_ number: Int32) -> Bool {
  let handler = signal(number, SIG_DFL)
  let isIgnored = unsafeBitCast(handler, to: Int.self) == unsafeBitCast(SIG_IGN, to: Int.self)
  if isIgnored { signal(number, SIG_IGN) }
  return isIgnored
}
