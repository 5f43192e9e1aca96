/// The result that a thread computes for a waiting task.
///
/// The task may be resumed before it waits, and then continues immediately. The thread sanitizer does not detect that the result
/// was produced before that, and reports a race between the thread and the task. So the task is resumed without a value, and
/// reads the result under a lock.
package final class ThreadResult<Success: Sendable>: Sendable {
  private let result = MutexProtected<Result<Success, any Error>?>(nil)

  private init() {}

  /// Suspends the caller until the result is available.
  ///
  /// - Parameter body: Called immediately. It must ensure that the function that is passed to it is called
  ///   once, on any thread, with the result.
  package static func wait(
    _ body: (_ finish: @escaping @Sendable (Result<Success, any Error>) -> Void) -> Void
  ) async throws -> Success {
    let waiting = ThreadResult()
    await withCheckedContinuation { continuation in
      body { result in
        waiting.result.withLock { $0 = result }
        continuation.resume()
      }
    }
    guard let result = waiting.result.withLock({ $0.take() }) else {
      throw StorageError(.io, "A thread has ended without a result.")
    }
    return try result.get()
  }
}
