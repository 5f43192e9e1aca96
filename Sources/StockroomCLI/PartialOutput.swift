import Dispatch
import Foundation
import StockroomCore

/// Prints the results so far of an interrupted command, which would otherwise be lost.
enum PartialOutput {
  private static let pending = MutexProtected<(@Sendable () throws -> Void)?>(nil)

  /// Calls `body`. If the command is interrupted, also calls `print`, once: after `body` has thrown or, if `body`
  /// hangs, in ``printWithoutBlocking()``.
  static func printed<Result>(
    by print: @escaping @Sendable () throws -> Void, unlessEnds body: () async throws -> Result
  ) async throws -> Result {
    pending.withLock { $0 = print }
    do {
      let result = try await body()
      pending.withLock { $0 = nil }
      return result
    } catch {
      if Task.isCancelled { printNow() } else { pending.withLock { $0 = nil } }
      throw error
    }
  }

  /// Prints the pending output on another thread, and waits for that for at most a second and a half, since it blocks
  /// if the output is not read.
  static func printWithoutBlocking() {
    let isPrinted = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      printNow()
      isPrinted.signal()
    }
    _ = isPrinted.wait(timeout: .now() + 1.5)
  }

  private static func printNow() {
    // Printed while the lock is held. Otherwise another thread could find nothing to print, and end the process in the
    // middle of the output.
    pending.withLock { pending in
      guard let print = pending else { return }
      pending = nil
      do {
        try print()
      } catch is Interrupted {
        // The pipe has been closed.
      } catch {
        writeToStandardError("stockroom: \(error)\n")
      }
    }
  }
}
