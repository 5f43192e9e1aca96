import Foundation
import StockroomCore
import StockroomLMDB
import TestFixtures
import Testing

/// Runs the jobs of one task, in order, and cancels the task before one of them.
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

  /// How many jobs have run.
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

  /// Runs a task to its end.
  func run(_ body: @escaping @Sendable () async throws -> [Data]) async throws -> [Data] {
    let task = Task(executorPreference: self) { try await body() }
    state.withLock { $0.task = task }
    defer { state.withLock { $0.task = nil } }
    queue.activate()
    return try await task.value
  }
}

/// Rules C4 and C5: long reads yield to other tasks, end with their task, and are not too many.
@Suite("Long reads of LMDB")
struct LMDBLongReadTests {
  @Test("A read of many absent keys yields to other tasks, and ends once its task is cancelled")
  func absentKeys() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write(value(0), key: key(0))

    // So few that the read does not look at the clock: these jobs are those of its beginning.
    let short = CancellingExecutor()
    let found = try await short.run { try await engine.read(keys: Array(repeating: key(1), count: 100)) }
    #expect(found == [])
    // So many that it takes longer than a read may keep its thread, which makes another job.
    let long = CancellingExecutor(cancellingBefore: short.jobs + 1)
    await #expect(throws: CancellationError.self) {
      try await long.run { try await engine.read(keys: Array(repeating: key(1), count: 500_000)) }
    }
    #expect(long.jobs > short.jobs)
    try await engine.close()
  }

  @Test(
    "Of long reads 32 are under way at the same time, and one that waits ends once its task is cancelled",
    .timeLimit(.minutes(5)))
  func longReadsWait() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write(value(0), key: key(0))
    // Twice, since a read that was cancelled must leave room for others.
    for _ in 0..<2 {
      let (underWay, begun) = (Count(), Count())
      let isReleased = DispatchSemaphore(value: 0)
      try await withThrowingTaskGroup(of: Void.self) { group in
        for _ in 0..<32 {
          group.addTask {
            try await engine.forEachEntry { _ in
              underWay.increment()
              isReleased.wait()
            }
          }
        }
        let waiting: [Task<[Data], any Error>]
        do {
          // Also after an error: the group waits for its tasks.
          defer { for _ in 0..<32 { isReleased.signal() } }
          while underWay.value < 32 {
            try Task.checkCancellation()
            await Task.yield()
          }
          waiting = (0..<2).map { _ in
            Task { () async throws -> [Data] in
              begun.increment()
              return try await engine.readAllData()
            }
          }
          while begun.value < 2 {
            try Task.checkCancellation()
            await Task.yield()
          }
          for _ in 0..<1_000 { await Task.yield() }
          #expect(try await engine.read(key: key(0)) == value(0))
          waiting[0].cancel()
        }
        await #expect(throws: CancellationError.self) { try await waiting[0].value }
        #expect(try await waiting[1].value == [value(0)])
        try await group.waitForAll()
      }
    }
    try await engine.close()
  }
}

/// A number that tasks share.
private final class Count: Sendable {
  private let number = MutexProtected(0)

  var value: Int { number.withLock { $0 } }

  func increment() { number.withLock { $0 += 1 } }
}
