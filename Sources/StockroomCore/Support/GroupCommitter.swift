import Synchronization

/// Commits the writes of many concurrent tasks together, on one thread: group commit.
///
/// While one group is being written to the disk, arriving writes wait and form the next one. So 64 tasks that
/// each write one entry share the cost of a sync, and a single task pays no more than without groups.
package final class GroupCommitter<Request: Sendable>: Sendable {
  private struct Waiting {
    let request: Request
    let continuation: CheckedContinuation<Void, any Error>
  }

  private let thread: DedicatedThread
  private let waiting = MutexProtected<[Waiting]>([])
  /// The number of requests in the last group.
  private let lastCount = Atomic(1)
  private let commit: @Sendable ([Request]) throws -> Void

  /// - Parameter commit: Makes the requests durable, in this order, each as a whole. If it throws, it is called again with each
  ///   request alone, and must do nothing for requests that it has already committed. It is not called again if it throws an
  ///   ``AfterCommitError``, or a ``StorageError`` with code `locked` or `closed`.
  package init(on thread: DedicatedThread, commit: @escaping @Sendable ([Request]) throws -> Void) {
    self.thread = thread
    self.commit = commit
  }

  /// Returns once the request has been committed.
  ///
  /// - Throws: `CancellationError` if the task was cancelled before, in which case nothing happens (rule C4);
  ///   what committing threw; ``StorageError`` with code `closed` if the thread has been stopped.
  package func submit(_ request: Request) async throws {
    try Task.checkCancellation()
    try await withCheckedThrowingContinuation { continuation in
      let isFirst = waiting.withLock { waiting in
        waiting.append(Waiting(request: request, continuation: continuation))
        return waiting.count == 1
      }
      guard isFirst else { return }
      do {
        try thread.enqueue { self.commitGroup() }
      } catch {
        for refused in takeGroup() { refused.continuation.resume(throwing: error) }
      }
    }
  }

  /// Waits briefly while there are fewer requests than in the last group: the tasks that wrote then have just been resumed, and
  /// most of them are about to write again. A single task does not wait.
  private func waitForCommitSiblings() {
    let expected = lastCount.load(ordering: .relaxed)
    DedicatedThread.spin { waiting.withLock { $0.count } >= expected }
  }

  private func takeGroup() -> [Waiting] {
    waiting.withLock { waiting in
      defer { waiting = [] }
      return waiting
    }
  }

  private func commitGroup() {
    waitForCommitSiblings()
    for (continuation, result) in results(of: takeGroup()) { continuation.resume(with: result) }
  }

  /// Commits the waiting requests as one group. If that fails, each request is retried alone, so that one that cannot be
  /// committed does not affect the others. They are not retried if the error would be the same for each, or came after the
  /// commit.
  ///
  /// Releases the requests. A transaction's body may hold the engine, whose last reference may be released by
  /// a task that is resumed (rule O4).
  private func results(
    of group: consuming [Waiting]
  ) -> [(continuation: CheckedContinuation<Void, any Error>, result: Result<Void, any Error>)] {
    lastCount.store(group.count, ordering: .relaxed)
    let (result, affectsAll) = attempt(group.map(\.request))
    let isEachTried = group.count > 1 && !affectsAll
    return group.map {
      let request = $0.request
      return ($0.continuation, isEachTried ? attempt([request]).result : result)
    }
  }

  /// Commits the requests once, and returns whether the result applies to each of them.
  private func attempt(_ requests: [Request]) -> (result: Result<Void, any Error>, affectsAll: Bool) {
    do {
      try commit(requests)
      return (.success(()), true)
    } catch let error as AfterCommitError {
      return (.failure(error.underlying), true)
    } catch {
      return (.failure(error), affectsWholeGroup(error))
    }
  }

  /// Whether each request would fail alone, too: another process holds the lock, for which each would wait as long again, or the
  /// engine has been closed.
  private func affectsWholeGroup(_ error: any Error) -> Bool {
    let code = (error as? StorageError)?.code
    return code == .locked || code == .closed
  }
}
