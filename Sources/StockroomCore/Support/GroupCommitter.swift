import Synchronization

/// Commits what many tasks write at the same time together, on one thread: group commit.
///
/// While one group is on its way to the disk, the writes that arrive wait and make up the next one. So 64 tasks
/// that each write one entry share the cost of a sync, and one task alone pays no more than before.
package final class GroupCommitter<Request: Sendable>: Sendable {
  private struct Waiting {
    let request: Request
    let continuation: CheckedContinuation<Void, any Error>
  }

  private let thread: DedicatedThread
  private let waiting = MutexProtected<[Waiting]>([])
  /// How many requests the last group had.
  private let lastCount = Atomic(1)
  private let commit: @Sendable ([Request]) throws -> Void

  /// - Parameter commit: Makes the requests durable, in this order, each as a whole. If it throws, it is called again with
  ///   each request alone, and does nothing for those that have been done; but not if it throws an ``AfterCommitError``.
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

  /// Waits for a moment as long as fewer requests are there than were committed last: the tasks that wrote then have just
  /// been resumed, and most of them are about to write again. One task alone waits for none.
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

  /// Commits what waits as one group. If that fails, each request is tried alone, so that one which cannot be
  /// done fails no other; but not if the error would be the same for each, or came after the commit.
  ///
  /// Releases the requests. A transaction's body may hold the engine, whose last reference a task that is resumed may
  /// drop (rule O4).
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

  /// Commits the requests once, and returns whether the result is that of each of them.
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

  /// Another process has the lock, for which each request would wait as long again; or nothing is open any more.
  private func affectsWholeGroup(_ error: any Error) -> Bool {
    let code = (error as? StorageError)?.code
    return code == .locked || code == .closed
  }
}

/// An error that a ``GroupCommitter``'s `commit` has met after all of its requests were committed, such as that the files
/// have been replaced meanwhile. The requests must not be committed again. Their callers get the underlying error.
package struct AfterCommitError: Error {
  package let underlying: any Error

  package init(_ underlying: any Error) { self.underlying = underlying }

  /// Does `work` after a commit.
  ///
  /// - Throws: ``AfterCommitError`` with what `work` throws the second time too.
  package static func marking(_ work: () throws -> Void) throws {
    do { try lookingAgain(work) } catch { throw AfterCommitError(error) }
  }

  /// Does `work`, a look at the place after a commit, and once more if it throws: a look can fail and say nothing of the place, and
  /// what has been committed is not to throw for that (rule F4).
  package static func lookingAgain(_ work: () throws -> Void) throws {
    do { try work() } catch { try work() }
  }
}
