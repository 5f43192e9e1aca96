import FaultyEngineWorker
import Dispatch
import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

@Suite("The stall timeout of checks")
struct ProgressTests {
  private let limit = Duration.seconds(2)

  private func outcome(stallTimeout: Duration, _ body: @escaping CheckDefinition.Body) async
    -> ConformanceOutcome
  {
    let suite = ConformanceSuite("Any", capabilities: [], stallTimeout: stallTimeout) { _ in
      try ReferenceEngine()
    }
    let check = Check(.c1, "any.check", "it comes to an end", body: body)
    return await ConformanceCheck(definition: check, suite: suite).outcome()
  }

  @Test("Progress restarts the stall timeout, and a stall is reported as such")
  func extends() async throws {
    let noted = LatestProgress()
    var actual = ""
    // On a busy machine a short limit may expire before there is progress.
    for limit in [limit, limit * 5, limit * 25] {
      let outcome = await outcome(stallTimeout: limit) { context in
        try await Task.sleep(for: .milliseconds(200))
        context.noteProgress()
        noted.note()
        try await Task.sleep(for: .seconds(1_000))
      }
      actual = try #require(outcome.failure).actual
      if actual.hasPrefix("the check made no progress for \(limit) after 1 step; if the engine") {
        let last = try #require(noted.last)
        #expect(last.duration(to: .now) >= limit - .milliseconds(10))
        return
      }
    }
    Issue.record("\(actual)")
  }

  @Test("A check that reports progress may take longer than the limit")
  func longSearch() async {
    var outcome = ConformanceOutcome.passed
    // On a busy machine there may be no progress within a short limit.
    for limit in [limit, limit * 5, limit * 25] {
      outcome = await self.outcome(stallTimeout: limit) { context in
        let end = ContinuousClock.now.advanced(by: limit * 1.2)
        while ContinuousClock.now < end {
          context.noteProgress()
          try await Task.sleep(for: .milliseconds(50))
        }
      }
      if outcome == .passed { return }
    }
    Issue.record("\(outcome)")
  }

  @Test("A check without progress is stopped at the limit")
  func hang() async throws {
    let outcome = await outcome(stallTimeout: .milliseconds(300)) { _ in
      try await Task.sleep(for: .seconds(100))
    }
    #expect(
      outcome.failure?.actual.hasPrefix("the check had not finished after 0.3 seconds; if the engine")
        == true)
  }

  @Test("A check that hangs names the calls in progress")
  func callsUnderWay() async throws {
    var actual = ""
    // On a busy machine the writes may not have begun within a short limit.
    for limit in [0.5, 5, 50] {
      let suite = ConformanceSuite("Hangs", capabilities: [], stallTimeout: .seconds(limit)) { _ in
        NeverAnswersWrites(base: try ReferenceEngine())
      }
      let check = try #require(suite.checks.first { $0.id == "late.after-acknowledged-calls" })
      actual = try #require(await check.outcome().failure).actual
      if actual.contains("; in progress: 4 times write(_:key:); if the engine") { return }
    }
    Issue.record("\(actual)")
  }

  @Test("The calls in progress are those before the work was cancelled")
  func callsBeforeCancellation() async throws {
    let (progress, hasEnded) = (CheckProgress(), Latch())
    progress.begin("write(_:key:)")
    let result = await withStallTimeout(.milliseconds(100), since: progress) {
      do { try await Task.sleep(for: .seconds(1_000)) } catch { progress.end("write(_:key:)") }
      hasEnded.signal()
    }
    #expect(await hasEnded.waitElsewhere(for: .seconds(100)))
    let exceeded = #expect(throws: StallTimeoutExceeded.self) { try result.get() }
    #expect(exceeded?.standstill.contains("; in progress: write(_:key:); if the engine") == true)
  }

  @Test(
    "An engine that blocks every thread of its callers forever fails, and so does the next one", .ownThreads)
  func deadlock() async {
    // In a separate process, where threads that are blocked forever do no harm.
    await #expect(processExitsWith: .success) {
      let suite = ConformanceSuite("Deadlock", capabilities: [], stallTimeout: .seconds(1)) { _ in
        NeverReturns(base: try ReferenceEngine())
      }
      let ids: Set = [
        "concurrency.loses-no-write", "concurrency.reads-own-writes", "concurrency.one-key",
        "cooperation.while-writing",
      ]
      let report = await suite.run(only: ids)
      #expect(report.failures.map(\.rule) == [.c1, .c1, .c1, .c5])
      #expect(
        report.failures.allSatisfy {
          $0.actual.hasPrefix("the check had not finished after 1.0 seconds")
        })
    }
  }

  #if os(Linux)
    /// Regression: an engine that created thousands of files on a slow disk, at low priority, was said to hang.
    @Test(
      "Time in which the process waits for a disk extends the stall timeout, but not forever", .ownThreads)
    func slowDisk() async {
      // In a separate process, because threads of others would compute.
      await #expect(processExitsWith: .success) {
        let limit = Duration.milliseconds(500)
        let slow = try DiskWait()
        Thread.detachNewThread {
          _ = Latch().wait(for: limit * 2.5)
          slow.end()
        }
        let delivered = await withStallTimeout(limit) { slow.waitForEnd() }
        #expect(throws: Never.self) { try delivered.get() }
        let endless = try DiskWait()
        let exceeded = await withStallTimeout(limit / 5) { endless.waitForEnd() }
        #expect(throws: StallTimeoutExceeded.self) { try exceeded.get() }
        endless.end()
      }
    }
  #endif

  @Test("A violation may have its own rule, evidence and seed; otherwise they are the check's")
  func violation() async throws {
    let found = await outcome(stallTimeout: .seconds(120)) { _ in
      throw Violation("it broke", rule: .w2, evidence: "one\ntwo", seed: 99)
    }
    #expect(
      found.failure
        == ConformanceFailure(
          rule: .w2, check: "any.check", expectation: "it comes to an end", actual: "it broke",
          evidence: "one\ntwo", seed: 99))
    let plain = await outcome(stallTimeout: .seconds(120)) { _ in throw Violation("it broke") }
    #expect(plain.failure?.rule == .c1 && plain.failure?.evidence == nil)
    #expect(plain.failure?.seed == ConformanceBudget().seed)
  }

  @Test("Some checks of a suite can be run alone, and a cancelled run runs none")
  func selection() async {
    let suite = ConformanceSuite("Any", capabilities: []) { _ in try ReferenceEngine() }
    let ids: Set = ["values.empty-is-not-absent", "counting.after-changes", "no.such-check"]
    let report = await suite.run(only: ids)
    #expect(Set(report.results.map(\.check)) == ids.subtracting(["no.such-check"]))
    #expect(report.passedCount == 2)

    let cancelled = await Task {
      withUnsafeCurrentTask { $0?.cancel() }
      return await suite.run()
    }.value
    #expect(cancelled.results.count == cancelled.applicableCount)
    #expect(cancelled.skipped.count == cancelled.results.count)
    #expect(cancelled.isConforming)
    #expect(!cancelled.isComplete && !cancelled.isCompleteForLevel)
  }
}

/// The time of the last progress.
private final class LatestProgress: Sendable {
  private let time = MutexProtected<ContinuousClock.Instant?>(nil)

  var last: ContinuousClock.Instant? { time.withLock { $0 } }

  func note() { time.withLock { $0 = .now } }
}

/// Waits for a lock that is never released, on the caller's thread.
private struct NeverReturns: FaultyEngine {
  let base: ReferenceEngine
  private let lock = DispatchSemaphore(value: 0)

  init(base: ReferenceEngine) { self.base = base }

  private func waitForever() { lock.wait() }

  func write(_ data: Data, key: CacheKey) async throws { waitForever() }
}

private struct NeverAnswersWrites: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws { try await Task.sleep(for: .seconds(1_000)) }
}

#if os(Linux)
  /// A thread in the state of one that waits for a disk: it starts a process that opens a pipe without a writer first.
  private final class DiskWait: Sendable {
    private let pipe = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)

    init() throws {
      guard mkfifo(pipe.path, 0o600) == 0 else { throw SystemError(errno) }
    }

    deinit { unlink(pipe.path) }

    func waitForEnd() {
      var actions = posix_spawn_file_actions_t()
      posix_spawn_file_actions_init(&actions)
      defer { posix_spawn_file_actions_destroy(&actions) }
      posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, pipe.path, O_RDONLY, 0)
      let arguments: [UnsafeMutablePointer<CChar>?] = [strdup("true"), nil]
      defer { for text in arguments { free(text) } }
      var process: pid_t = 0
      let result = posix_spawn(&process, "/bin/true", &actions, nil, arguments, [nil])
      #expect(result == 0, "The process was not started: \(SystemError(result))")
      if result == 0 { waitpid(process, nil, 0) }
    }

    func end() {
      let writer = open(pipe.path, O_WRONLY | O_CLOEXEC)
      if writer >= 0 { close(writer) }
    }
  }
#endif
