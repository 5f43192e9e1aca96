internal import Foundation
package import Testing

/// Runs tests on threads of their own instead of those of the cooperative pool.
///
/// For tests with `#expect(processExitsWith:)`: Swift Testing blocks a thread of the test until the process has ended. On a machine with
/// two processors, the pool has two threads, and two such tests would stop all others.
package struct OwnThreads: TestTrait, SuiteTrait, TestScoping {
  package let isRecursive = true

  @concurrent package func provideScope(
    for test: Test, testCase: Test.Case?, performing function: @concurrent @Sendable () async throws -> Void
  ) async throws {
    try await withTaskExecutorPreference(ThreadForEachJob()) { try await function() }
  }
}

extension Trait where Self == OwnThreads {
  package static var ownThreads: Self { Self() }
}

private final class ThreadForEachJob: TaskExecutor {
  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    Thread.detachNewThread { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }
}
