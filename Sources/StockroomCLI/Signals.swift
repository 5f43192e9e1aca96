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

/// A signal ended the command, after it had cleaned up.
struct Interrupted: Error {
  let signal: Int32
  /// What the command could not clean up.
  var remainder: IncompletePlace?
}

/// A signal ended a command that goes on until there is one, so that this is success.
struct EndedBySignal: Error {}

/// Runs the work, and cancels it at SIGINT, SIGTERM and SIGHUP, so that it can clean up. A signal that is ignored from the start, as SIGHUP
/// is below `nohup` and SIGINT in the background of a script, stays ignored.
///
/// If the work has not ended after a second and a half, because an engine hangs or its output is not read, its scratch
/// directories are removed and the process exits after its ``PartialOutput``, unless the work is ``CleaningUp``: that is waited for. A
/// second signal ends the process immediately, SIGHUP not counted: a terminal that is closed may send it twice, or together with SIGTERM.
///
/// - Throws: ``Interrupted`` if there was a signal, unless the work ended with ``EndedBySignal``; otherwise what the work throws.
func cancellingOnSignal(_ work: @escaping @Sendable () async throws -> Void) async throws {
  let received = MutexProtected<Int32?>(nil)
  let (registrations, registration) = AsyncStream<Never>.makeStream()
  let task = Task {
    // A signal that comes earlier ends the process, which has done nothing yet.
    for await _ in registrations {}
    try Task.checkCancellation()
    try await work()
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
      // On a thread of its own: work that hangs may block all threads of the pool.
      Thread.detachNewThread {
        waitForWork()
        PartialOutput.printWithoutBlocking()
        if CleaningUp.isAwaited {
          writeToStandardError("stockroom: cleaning up; a second signal ends the command without that\n")
          CleaningUp.waitUntilDone()
          // The work ends the process with what it has to say, unless it hangs after all.
          waitForWork()
        }
        ScratchDirectories.removeAll()
        _exit(128 + number)
      }
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
  if case .failure(is EndedBySignal) = result { return }
  if let number = received.withLock({ $0 }) {
    var interrupted = Interrupted(signal: number)
    if case .failure(let error as IncompletePlace) = result { interrupted.remainder = error }
    throw interrupted
  }
  try result.get()
}

/// Whether the process has been started with the signal ignored.
private func isIgnored(_ number: Int32) -> Bool {
  let handler = signal(number, SIG_DFL)
  let isIgnored = unsafeBitCast(handler, to: Int.self) == unsafeBitCast(SIG_IGN, to: Int.self)
  if isIgnored { signal(number, SIG_IGN) }
  return isIgnored
}

/// Waits for a second and a half, and longer on a machine that is so busy that the work gets its turn as late as this thread.
private func waitForWork() {
  for _ in 0..<75 { usleep(20_000) }
}
