import Foundation
import StockroomCore
import Testing

@Suite struct GroupCommitterTests {
  @Test("Every submission is committed once, in groups when many arrive together")
  func groups() async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    let groups = MutexProtected<[[Int]]>([])
    let committer = GroupCommitter<Int>(on: thread) { group in groups.withLock { $0.append(group) } }
    let isReleased = DispatchSemaphore(value: 0)
    try thread.enqueue { isReleased.wait() }
    let submissions = (0..<64).map { number in Task { try await committer.submit(number) } }
    isReleased.signal()
    for submission in submissions { try await submission.value }
    #expect(groups.withLock { $0.joined().sorted() } == Array(0..<64))
  }

  @Test("A group that waits for the lock of another process waits once, not once per request")
  func locked() async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    let attempts = MutexProtected<[[Int]]>([])
    let committer = GroupCommitter<Int>(on: thread) { group in
      attempts.withLock { $0.append(group) }
      throw StorageError(.locked, "Somebody else writes.")
    }
    let isReleased = DispatchSemaphore(value: 0)
    try thread.enqueue { isReleased.wait() }
    let submissions = (0..<64).map { number in
      Task { try? await committer.submit(number) == () }
    }
    isReleased.signal()
    for submission in submissions { #expect(await submission.value == nil) }
    #expect(attempts.withLock { $0.joined().sorted() } == Array(0..<64))
  }

  @Test("A request that cannot be committed fails no other request")
  func failure() async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    let committed = MutexProtected<[Int]>([])
    let committer = GroupCommitter<Int>(on: thread) { group in
      if group.contains(13) { throw Refused() }
      committed.withLock { $0 += group }
    }
    let submissions = (0..<64).map { number in Task { try await committer.submit(number) } }
    for (number, submission) in submissions.enumerated() {
      let isRefused = await submission.result.isFailure
      #expect(isRefused == (number == 13))
    }
    #expect(committed.withLock { $0.sorted() } == (0..<64).filter { $0 != 13 })
  }

  @Test("A group that throws after it has been committed is not committed again, and each request fails")
  func failureAfterCommit() async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    let committed = MutexProtected<[Int]>([])
    let committer = GroupCommitter<Int>(on: thread) { group in
      committed.withLock { $0 += group }
      throw AfterCommitError(Refused())
    }
    let isReleased = DispatchSemaphore(value: 0)
    try thread.enqueue { isReleased.wait() }
    let submissions = (0..<64).map { number in Task { try await committer.submit(number) } }
    isReleased.signal()
    for submission in submissions {
      await #expect(throws: Refused.self) { try await submission.value }
    }
    #expect(committed.withLock { $0.sorted() } == Array(0..<64))
  }

  @Test("An error after the commit does not say that nothing has happened (rule F1)")
  func codesAfterCommit() throws {
    for code in [.permissionDenied, .diskFull, .readOnly, .locked, .closed, .unsupported]
      as [StorageError.Code]
    {
      let cause = StorageError(code, "The test refuses it.")
      let error = try #require(AfterCommitError(cause).underlying as? StorageError)
      #expect(error.code == .io)
      #expect((error.underlying as? StorageError)?.code == code)
    }
    for code in [.io, .corrupted] as [StorageError.Code] {
      let error = try #require(AfterCommitError(StorageError(code, "It is so.")).underlying as? StorageError)
      #expect(error.code == code && error.underlying == nil)
    }
  }

  @Test("A cancelled task submits nothing")
  func cancellation() async {
    let thread = DedicatedThread()
    defer { thread.stop() }
    let committed = MutexProtected(0)
    let committer = GroupCommitter<Int>(on: thread) { _ in committed.withLock { $0 += 1 } }
    let task = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      try await committer.submit(1)
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(committed.withLock { $0 } == 0)
  }

  @Test("After the thread has stopped, submissions are refused at once")
  func stopped() async {
    let thread = DedicatedThread()
    let committer = GroupCommitter<Int>(on: thread) { _ in }
    thread.stop()
    let error = await #expect(throws: StorageError.self) { try await committer.submit(1) }
    #expect(error?.code == .closed)
  }
}

private struct Refused: Error {}

extension Result {
  fileprivate var isFailure: Bool {
    if case .failure = self { true } else { false }
  }
}
