import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

@Suite("Engines under many changes, many tasks, and clock jumps")
struct LifeFaultTests {
  @Test("Each faulty engine fails the checks that are named for it", arguments: LifeFaultCase.all.spread)
  func failsForItsRule(_ engineCase: LifeFaultCase) async throws {
    var missed = engineCase.checks
    // If tasks have to overlap at the right moment, or a process is killed at random, several attempts may be necessary.
    for _ in 0..<20 where !missed.isEmpty {
      for check in engineCase.suite.checks where missed.contains(check.id) {
        switch await check.outcome() {
        case .passed: break
        case .failed(let failure):
          missed.remove(check.id)
          #expect(engineCase.rules.contains(failure.rule), "\(failure)")
        // A fake clock is not available everywhere.
        case .skipped(let reason):
          missed.remove(check.id)
          #expect(!reason.isEmpty)
        case .couldNotRun(let reason): Issue.record("\(check.id) could not run: \(reason)")
        }
      }
    }
    #expect(missed.isEmpty)
  }

  @Test("Every check of many changes, clocks and many tasks has an engine that fails it")
  func isComplete() {
    let failing = LifeFaultCase.all.reduce(into: Set()) { $0.formUnion($1.checks) }
    let checks = ConformanceSuite.lifeFault("", nil, .standard).checksOfLives
    #expect(Set(checks.map(\.id)).subtracting(failing) == [])
    #expect(Set(LifeFaultCase.all.map(\.testDescription)).count == LifeFaultCase.all.count)
    #expect(LifeFaultCase.all.count >= 60)
  }

  @Test("A failure after many calls names the first call after which it is visible")
  func firstCall() async throws {
    let suite = ConformanceSuite.lifeFault("Counts twice", .countsRemovalsTwice, .exhaustive)
    let check = try #require(suite.checks.first { $0.id == "life.of-few-keys" })
    let failure = try #require(await check.outcome().failure)
    #expect(failure.actual.contains("calls, and not before, "))
  }

  @Test("A failure of many entries names how many were complete")
  func firstEntry() async throws {
    let suite = ConformanceSuite("Evicts", capabilities: [], budget: .exhaustive) { _ in
      EvictsTheOldest(base: try ReferenceEngine(), count: 3_000)
    }
    let check = try #require(suite.checks.first { $0.id == "life.many-entries" })
    let failure = try #require(await check.outcome().failure)
    #expect(failure.actual.hasPrefix("the first 3000 entries were complete, and the first 3001 were not; "))
  }

  @Test(
    "If the files of a place cannot be listed, its size is reported as unmeasurable",
    arguments: ["life.frees-disk-space", "life.leaves-nothing-after-calls"])
  func unlistable(_ id: String) async throws {
    let suite = ConformanceSuite.lifeFault("Hides", .hidesItsPlace, .standard)
    let check = try #require(suite.checks.first { $0.id == id })
    guard case .couldNotRun(let reason) = await check.outcome() else {
      Issue.record("\(id) was made.")
      return
    }
    #expect(reason.contains("could not be listed"), "\(reason)")
  }

  @Test("An engine that compacts its log after more than 100 MiB passes the check of file sizes")
  func lateCompaction() async throws {
    let suite = ConformanceSuite.lifeFault("Log", nil, .standard)
    try await #require(suite.checks.first { $0.id == "life.frees-disk-space" }).run()
  }

  @Test(
    "Usage that goes up and down has stopped growing; usage that keeps a part of each write has not"
  )
  func growth() {
    func series(of stages: Int, _ held: (Int) -> Int) -> GrowthSeries {
      var series = GrowthSeries()
      for stage in 1...stages {
        let mebibytes = stage * GrowthSeries.stage
        series.append(files: held(mebibytes) << 20, memory: held(mebibytes) << 20)
      }
      return series
    }
    let (all, quarter) = (series(of: 20) { $0 }, series(of: 20) { $0 / 4 })
    let kept = series(of: 20) { $0 / 3 + $0 % 64 }
    #expect(!all.hasStopped && !quarter.hasStopped && !kept.hasStopped)
    for period in [1, 64, 100, 200] {
      let compacted = series(of: 20) { $0 % period }
      #expect(compacted.hasStopped, "compacted after \(period) MiB")
    }
    let full = series(of: 4) { min($0, 50) }
    #expect(full.hasStopped)
    let one = series(of: 1) { $0 }
    #expect(!one.hasStopped)
  }

  @Test("An engine that compacts its log next to planted links, or on a full disk, passes")
  func compactionAmongOthers() async throws {
    let suite = ConformanceSuite.lifeFault("Log", nil, .standard)
    for id in [
      "life.on-a-full-disk", "privacy.of-files", "planted.link", "planted.dangling-link",
    ] {
      try await #require(suite.checks.first { $0.id == id }).run()
    }
  }

  @Test(
    "A correct engine with a log passes",
    arguments: [nil, LifeFaultEngine.Fault.compactsEagerly, .keepsTwoCopies, .countsTicks])
  func passes(_ behavior: LifeFaultEngine.Fault?) async {
    let checks = ConformanceSuite.lifeFault("Log", behavior).checksOfLives
    // The log and the clock do not matter to checks of concurrent tasks in memory.
    let isAsked = { (check: ConformanceCheck) in
      behavior == nil || TestRun.isExhaustive || ["life.", "clock."].contains { check.id.hasPrefix($0) }
    }
    await checks.filter(isAsked).runAll()
  }

  /// The check sets the clock of a process, but not the clock that determines the times of files.
  @Test("An engine whose times are those of files does not fail the check of times when the clock jumps")
  func clockOfFiles() async throws {
    let suite = ConformanceSuite.lifeFault("Times of files", .clockOfFiles, .quick)
    let check = try #require(suite.checks.first { $0.id == "clock.jumps-and-timestamps" })
    let outcome = await check.outcome()
    #expect(outcome.failure == nil, "\(outcome.failure?.actual ?? "")")
  }

  @Test(
    "Unusual but correct engines pass",
    arguments: ["slow", "one at a time", "one reader at a time", "server"])
  func unusual(_ name: String) async {
    let suite = ConformanceSuite(
      name, capabilities: [.atomicBatches, .snapshotReads, .orderedScans], budget: .quick,
      clockTolerance: name == "server" ? .seconds(10) : .zero
    ) { _ in
      let base = try ReferenceEngine()
      return switch name {
      case "slow": TakesItsTime(base: base)
      case "one at a time": SerializesCalls(base: base, together: true)
      case "one reader at a time": SerializesCalls(base: base, together: false)
      default: HasAServersClock(base: base, ahead: 5)
      }
    }
    let ofTime = suite.checks.filter { $0.rule == .w2 }
    // For engines that perform one call at a time, checks without concurrent calls are left out. For a clock that is
    // ahead, checks that read no times are left out.
    let leftOut =
      switch name {
      case "slow": [String]()
      case "server": ["late.", "fairness."]
      default: ["life.", "clock."]
      }
    let checks = suite.checksOfLives.filter { check in
      TestRun.isExhaustive || !leftOut.contains { check.id.hasPrefix($0) }
    }
    await (checks + ofTime).runAll()
  }
}
