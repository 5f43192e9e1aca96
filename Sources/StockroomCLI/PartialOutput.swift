import Dispatch
import Foundation
import StockroomCore

/// What an interrupted command prints of its results, which would otherwise be lost.
enum PartialOutput {
  private static let pending = MutexProtected<(@Sendable () throws -> Void)?>(nil)

  /// Calls `body`. If it is interrupted, also calls `print`, once: after `body` has thrown, or without waiting any longer for a `body`
  /// that hangs.
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

  /// Prints what has not been printed, on another thread, and waits for it no longer than a second and a half: nobody may read it.
  static func printWithoutBlocking() {
    let isPrinted = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      printNow()
      isPrinted.signal()
    }
    _ = isPrinted.wait(timeout: .now() + 1.5)
  }

  private static func printNow() {
    // Printed inside the lock, so that the process does not end in the middle because another thread finds nothing left to print.
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
