import Foundation
import StockroomCore
import StockroomLMDB
import TestFixtures
import Testing

/// Runs the jobs of one task in order, and cancels the task before one of them.
private final class CancellingExecutor: TaskExecutor {
  private struct State {
    var jobs = 0
    var task: Task<[Data], any Error>?
  }

  private let queue = DispatchQueue(label: "jobs", attributes: .initiallyInactive)
  private let state = MutexProtected(State())
  /// The number of the job, counted from 1.
  private let cancelledJob: Int?

  init(cancellingBefore job: Int? = nil) { cancelledJob = job }

  /// The number of jobs that have run.
  var jobs: Int { state.withLock { $0.jobs } }

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { [self] in
      let cancelled = state.withLock { state -> Task<[Data], any Error>? in
        state.jobs += 1
        return state.jobs == cancelledJob ? state.task : nil
      }
      cancelled?.cancel()
      job.runSynchronously(on: asUnownedTaskExecutor())
    }
  }

  /// Runs a task to completion.
  func run(_ body: @escaping @Sendable () async throws -> [Data]) async throws -> [Data] {
    let task = Task(executorPreference: self) { try await body() }
    state.withLock { $0.task = task }
    defer { state.withLock { $0.task = nil } }
    queue.activate()
    return try await task.value
  }
}

/// Rules C4 and C5: long reads yield to other tasks, end when their task is cancelled, and are limited in
/// number.
@Suite("Long reads of LMDB")
struct LMDBLongReadTests {
  @Test("A read of many absent keys yields to other tasks, and ends once its task is cancelled")
  func absentKeys() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write(value(0), key: key(0))

    // Too few keys for a check of the clock: these jobs are the fixed part of the read.
    let short = CancellingExecutor()
    let found = try await short.run { try await engine.read(keys: Array(repeating: key(1), count: 100)) }
    #expect(found == [])
    // Enough keys to exceed the time a read may occupy its thread, which adds a job.
    let long = CancellingExecutor(cancellingBefore: short.jobs + 1)
    await #expect(throws: CancellationError.self) {
      try await long.run { try await engine.read(keys: Array(repeating: key(1), count: 500_000)) }
    }
    #expect(long.jobs > short.jobs)
    try await engine.close()
  }
}
