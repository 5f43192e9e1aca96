import StockroomCore

/// A call threw `CancellationError` in a task that had not been cancelled.
struct UnexpectedCancellation: Error {}

/// Makes a call in a separate task, which is cancelled after this task has yielded that many times. If `yields` is nil,
/// makes the call in this task and does not cancel it.
func perform<Answer: Sendable>(
  _ call: @escaping @Sendable () async throws -> Answer, cancelledAfter yields: Int?
) async throws -> Answer {
  guard let yields else {
    do {
      return try await call()
    } catch let failure as CallFailure where failure.error is CancellationError && !Task.isCancelled {
      throw UnexpectedCancellation()
    }
  }
  let task = Task { @concurrent in
    if yields == 0 { withUnsafeCurrentTask { $0?.cancel() } }
    return try await call()
  }
  for _ in 0..<yields { await Task.yield() }
  task.cancel()
  return try await task.value
}
