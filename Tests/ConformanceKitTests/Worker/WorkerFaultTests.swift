import Foundation
import FaultyEngineWorker
import StockroomCore
import StockroomTestSupport
import Testing

@testable import ConformanceKit

/// A faulty engine that is checked in a worker process.
struct WorkerFaultCase: Sendable, CustomTestStringConvertible {
  let rule: ContractRule
  let name: String
  let check: String
  let suite: ConformanceSuite

  var testDescription: String { "\(rule): \(name), \(check)" }

  private static let log = ConformanceSuite.crashFault("Log", isShared: false)
  /// Waits for its lock forever.
  private static let sharedLog = ConformanceSuite.crashFault(
    "Shared log", isShared: true, stallTimeout: .seconds(8))
  /// Reads its log when it is opened.
  private static let otherLog = PowerLossFaultCase("keeps a log", keepsLog: true, breaking: []).suite {
    let engine = FailingStorageEngine($0)
    // Limits the number of entries, since the check writes as many as it can within a second.
    engine.failEveryCall { _ in
      usleep(200_000)
      return false
    }
    return engine
  }

  /// Reads its log at the first read.
  static func lazyLog(readingAfterCrashes: Bool = false) -> ConformanceSuite {
    ConformanceSuite(
      "Lazy log", capabilities: ReferenceEngine.promises,
      worker: ConformanceWorker(
        product: "FaultyEngineWorker",
        arguments: ["reference"] + (readingAfterCrashes ? ["afterCrashes"] : []))
    ) {
      try ReferenceEngine(directory: $0, fault: readingAfterCrashes ? .readsEverythingAfterCrashes : nil)
    }
  }

  static let all: [WorkerFaultCase] = [
    .init(
      rule: .c6, name: "writes to a file that has no name", check: "place.deleted-for-another-process",
      suite: log),
    .init(rule: .c6, name: "writes to a moved file", check: "place.moved-for-another-process", suite: log),
    .init(
      rule: .c6, name: "writes to a replaced file", check: "place.replaced-for-another-process", suite: log),
    .init(rule: .o5, name: "waits for a lock without end", check: "locks.of-a-mere-reader", suite: sharedLog),
    .init(
      rule: .o6, name: "reads everything when it is opened", check: "opening.costs-the-same", suite: otherLog),
    .init(
      rule: .o6, name: "reads everything when it was not closed", check: "opening.costs-the-same",
      suite: lazyLog(readingAfterCrashes: true)),
  ]
}

@Suite("Faulty engines in a worker process")
struct WorkerFaultTests {
  @Test("Each fails the check for its fault", arguments: WorkerFaultCase.all)
  func fails(_ worker: WorkerFaultCase) async throws {
    let check = try #require(worker.suite.checks.first { $0.id == worker.check })
    var outcome = ConformanceOutcome.passed
    // On a busy machine another load may hide what a call costs.
    for _ in 0..<10 where outcome == .passed { outcome = await check.outcome() }
    switch outcome {
    case .failed(let failure): #expect(failure.rule == worker.rule, "\(failure)")
    case .skipped(let reason): #expect(reason.contains("faketime"), "\(reason)")
    case .passed: Issue.record("It passed.")
    case .couldNotRun(let reason): Issue.record("\(reason)")
    }
  }

  @Test("An engine that reads nothing when it is opened passes, even after its process was killed")
  func passesWithLateReading() async throws {
    try await #require(WorkerFaultCase.lazyLog().checks.first { $0.id == "opening.costs-the-same" }).run()
  }

  /// Regression: with the fast clock of the check, its tasks slept for hours.
  @Test("An engine whose calls wait for timers passes beside a process that may only read")
  func passesWithTimers() async throws {
    let suite = ConformanceSuite.environmentFault("Timers", .waitsWithTimers, stallTimeout: .seconds(24))
    try await #require(suite.checks.first { $0.id == "locks.of-a-mere-reader" }).run()
  }

  @Test("An engine that gives up when another process has its lock passes")
  func passesBesideReaders() async throws {
    let suite = ConformanceSuite.crashFault("Log", isShared: false)
    try await #require(suite.checks.first { $0.id == "locks.of-a-mere-reader" }).run()
  }
}
