import Foundation
import StockroomCore
import Testing

@testable import ConformanceKit

@Suite("The kit's time limits")
struct TimeLimitTests {
  /// Regression: when a stopped process was resumed, its time limit had expired at the next check.
  @Test("Time in which the process does not run does not count")
  func pauses() {
    let start = ContinuousClock.now
    var limit = RunningTimeLimit(.milliseconds(50), from: start)
    let looks = [.milliseconds(10), .seconds(60), .seconds(60) + .milliseconds(20)] as [Duration]
    #expect(looks.map { limit.isOver(at: start + $0) } == [false, false, true])
  }

  @Test("A limit that is checked rarely counts each pause up to its longest interval")
  func rareChecks() {
    let start = ContinuousClock.now
    var limit = RunningTimeLimit(.milliseconds(500), from: start, longestInterval: .milliseconds(200))
    let looks = [.milliseconds(150), .seconds(60), .seconds(120)] as [Duration]
    #expect(looks.map { limit.isOver(at: start + $0) } == [false, false, true])
    #expect(limit.left == .milliseconds(-50))
  }

  /// Regression: after a process had been stopped, its transactions were reported as starving a write.
  @Test("Time in which the process does not run does not count in the loops of several tasks")
  func sharedPauses() {
    let start = ContinuousClock.now
    let limit = SharedTimeLimit(.milliseconds(50), from: start)
    let looks = [.milliseconds(10), .seconds(60), .seconds(60) + .milliseconds(20)] as [Duration]
    #expect(looks.map { limit.isOver(at: start + $0) } == [false, false, true])
  }

  /// Regression: three openings that each wait for a lock for a minute were one step of two minutes. One that was
  /// retried repeatedly continued forever.
  @Test("An opening that has ended extends a step by a limited time, even if it threw")
  func openings() async throws {
    let suite = ConformanceSuite("", capabilities: []) { url in
      if url.lastPathComponent == "locked" { throw StorageError(.locked, "Somebody else has it.") }
      return LockedEngine()
    }
    let context = CheckContext(suite: suite)
    let (start, limit) = (context.progress.last, Duration.seconds(60))
    _ = try await context.openUnregistered()
    let opened = context.progress.last(within: limit)
    #expect(opened > start)
    let refused = try await context.openUnlessLocked(context.root.appending(path: "locked"))
    #expect(refused == nil)
    #expect(context.progress.last(within: limit) > opened)
    #expect(context.progress.last(within: .zero) == start)
  }

  /// Regression: thousands of calls of a slow engine were one step of a check.
  @Test("A call that returns extends a step by a limited time, unless other calls are in progress")
  func returns() {
    let (progress, limit) = (CheckProgress(), Duration.seconds(60))
    let start = progress.last
    progress.begin("write(_:key:)")
    progress.begin("read(key:)")
    progress.end("read(key:)", hasReturned: true)
    #expect(progress.last(within: limit) == start)
    progress.end("write(_:key:)")
    #expect(progress.last(within: limit) == start)
    progress.begin("read(key:)")
    progress.end("read(key:)", hasReturned: true)
    #expect(progress.last(within: limit) > start)
    #expect(progress.last(within: .zero) == start)
  }

  /// Regression: only the check as a whole had a longer limit.
  @Test("A suite with a long stall timeout waits longer for a single call, too")
  func longerPatience() {
    func timeout(of seconds: Int) -> Duration {
      let suite = ConformanceSuite("", capabilities: [], stallTimeout: .seconds(seconds)) { _ in
        LockedEngine()
      }
      return CheckContext(suite: suite).timeout(atMost: .seconds(30))
    }
    #expect(timeout(of: 10) == .seconds(5))
    #expect(timeout(of: 120) == .seconds(30))
    #expect(timeout(of: 1_200) == .seconds(120))
  }

  @Test("Setting the clock is detected, and slewing it is not")
  func setClocks() {
    let (date, start) = (Date(timeIntervalSince1970: 1_700_000_000), ContinuousClock.now)
    let reading = ClockReading(date: date, at: start)
    func isOff(_ seconds: Double, after elapsed: Double) -> Bool {
      reading.isOff(
        from: ClockReading(date: date.addingTimeInterval(seconds), at: start + .seconds(elapsed)))
    }
    #expect(!isOff(0, after: 0))
    #expect(!isOff(10.004, after: 10))
    #expect(!isOff(3_599, after: 3_600))
    #expect(isOff(9, after: 10))
    #expect(isOff(-3_600, after: 1))
    #expect(isOff(0.01, after: 0.005))
  }
}
