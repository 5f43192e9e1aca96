import Foundation
import StockroomEngines

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
  /// The place that the command has left incomplete, if there is one.
  var remainder: IncompletePlace?
}

/// A signal ended a command that runs until it is interrupted, so that the command has succeeded.
struct EndedBySignal: Error {}

/// Runs the work like `untilInterrupted`, which cancels it at a signal, so that it can clean up.
///
/// If the work has not ended a second and a half later, because an engine hangs or its output is not read, this prints
/// the ``PartialOutput``, waits for work that is ``CleaningUp``, removes the scratch directories, and exits the
/// process.
///
/// - Throws: ``Interrupted`` if there was a signal, unless the work ended with ``EndedBySignal``; otherwise what the work throws.
func cancellingOnSignal(_ work: @escaping @Sendable () async throws -> Void) async throws {
  do {
    try await untilInterrupted(onSignal: exitUnlessWorkEnds, work)
  } catch is EndedBySignal {
    return
  } catch let error as SignalReceived {
    if error.cause is EndedBySignal { return }
    throw Interrupted(signal: error.signal, remainder: error.cause as? IncompletePlace)
  }
}

@Sendable private func exitUnlessWorkEnds(after number: Int32) {
  // On a new thread: work that hangs may block all threads of the cooperative pool.
  Thread.detachNewThread {
    waitForWork()
    PartialOutput.printWithoutBlocking()
    if CleaningUp.isAwaited {
      writeToStandardError("stockroom: cleaning up; a second signal ends the command without that\n")
      CleaningUp.waitUntilDone()
      // During this time the work normally prints its message and ends the process.
      waitForWork()
    }
    ScratchDirectories.removeAll()
    _exit(128 + number)
  }
}

/// Waits for a second and a half, in short steps. On a busy machine these take longer, so that the work has more time,
/// too.
private func waitForWork() {
  for _ in 0..<75 { usleep(20_000) }
}
