import StockroomCore

/// The first of several callers works for all callers that arrive while it waits.
final class GroupedCalls<Request: Sendable, Value: Sendable>: Sendable {
  private struct Waiting {
    let request: Request
    let continuation: CheckedContinuation<Value, any Error>
  }
  /// The callers that wait for the first one; nil if there is none.
  private let waiting = MutexProtected<[Waiting]?>(nil)

  /// - Parameter answer: Returns the results of the requests, in the same order.
  func call(
    _ request: Request, _ answer: @escaping @Sendable ([Request]) async -> [Result<Value, any Error>]
  ) async throws -> Value {
    let isFirst = waiting.withLock { waiting in
      defer { waiting = waiting ?? [] }
      return waiting == nil
    }
    guard isFirst else {
      return try await withCheckedThrowingContinuation { continuation in
        let isLate = waiting.withLock { waiting in
          waiting?.append(Waiting(request: request, continuation: continuation))
          return waiting == nil
        }
        if isLate { Task { continuation.resume(with: await answer([request])[0]) } }
      }
    }
    for _ in 0..<8 { await Task.yield() }
    let others = waiting.withLock { $0.take() } ?? []
    let results = await answer([request] + others.map(\.request))
    for (other, result) in zip(others, results.dropFirst()) { other.continuation.resume(with: result) }
    return try results[0].get()
  }
}
