import Synchronization

/// Whether the task that waits for a thread has been cancelled.
package final class CancellationFlag: Sendable {
  private let isCancelled = Atomic(false)

  /// Throws `CancellationError` once the task has been cancelled.
  package func check() throws {
    if isCancelled.load(ordering: .relaxed) { throw CancellationError() }
  }

  private func cancel() { isCancelled.store(true, ordering: .relaxed) }

  /// Calls `body` with a flag that is set once the task has been cancelled.
  package static func following<Result: Sendable>(
    _ body: @Sendable (CancellationFlag) async throws -> Result
  ) async rethrows -> Result {
    let flag = CancellationFlag()
    return try await withTaskCancellationHandler {
      try await body(flag)
    } onCancel: {
      flag.cancel()
    }
  }
}

extension DedicatedThread {
  /// Runs long work on a new thread, which ends with the work. The work must check the flag from time to time.
  package static func runOnNewThread<Result: Sendable>(
    _ work: @escaping @Sendable (CancellationFlag) throws -> Result
  ) async throws -> Result {
    try Task.checkCancellation()
    let thread = DedicatedThread()
    defer { thread.stop() }
    return try await thread.runCancellably(work)
  }

  /// Runs long work on the thread. The work must check the flag from time to time.
  package func runCancellably<Result: Sendable>(
    _ work: @escaping @Sendable (CancellationFlag) throws -> Result
  ) async throws -> Result {
    try await CancellationFlag.following { flag in try await run { try work(flag) } }
  }
}
