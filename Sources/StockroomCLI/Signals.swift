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
  /// What the command could not clean up.
  var remainder: IncompletePlace?
}

/// A signal ended a command that goes on until there is one, so that this is success.
struct EndedBySignal: Error {}

/// Runs the work as `untilInterrupted` does: cancels it at a signal, so that it can clean up.
///
/// If the work has not ended after a second and a half, because an engine hangs or its output is not read, its scratch
/// directories are removed and the process exits after its ``PartialOutput``, unless the work is ``CleaningUp``: that is waited for.
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

/// Waits for a second and a half, and longer on a machine that is so busy that the work gets its turn as late as this thread.
private func waitForWork() {
  for _ in 0..<75 { usleep(20_000) }
}
