/// What a thread computes for a task that waits.
///
/// The task may be resumed before it waits, and then goes on at once. The thread sanitizer does not see that the result was made before
/// that, and takes what the two do with it for a race. So the task is resumed with nothing, and finds the result behind a lock.
package final class ThreadResult<Success: Sendable>: Sendable {
  private let result = MutexProtected<Result<Success, any Error>?>(nil)

  private init() {}

  /// Suspends the caller until the result is there.
  ///
  /// - Parameter body: Called at once. It sees to it that the function which it is given is called once, on whichever
  ///   thread, with the result.
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
