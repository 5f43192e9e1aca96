import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import TestFixtures
import Testing

/// A correct engine that is unusual.
struct UnusualEngine: Sendable, CustomTestStringConvertible {
  let name: String
  let capabilities: EngineCapabilities
  /// Whether each call waits, so that checks with many calls take long.
  let isSlow: Bool
  let makeEngine: @Sendable () throws -> any StorageEngine

  var testDescription: String { name }

  init(
    _ name: String,
    claiming capabilities: EngineCapabilities = [.atomicBatches, .snapshotReads, .orderedScans],
    isSlow: Bool = false, makeEngine: @escaping @Sendable () throws -> any StorageEngine
  ) {
    (self.name, self.capabilities, self.isSlow, self.makeEngine) = (name, capabilities, isSlow, makeEngine)
  }

  static let all: [UnusualEngine] = [
    .init("slow", isSlow: true) { SlowEngine(base: try ReferenceEngine()) },
    .init("slow, with six methods", claiming: [], isSlow: true) { SlowMinimalEngine() },
    .init("remote", isSlow: true) { RemoteEngine(base: try ReferenceEngine()) },
    .init("yields at every step") { YieldingEngine(base: try ReferenceEngine()) },
    .init("works in tasks of its own", isSlow: true) { DetachedEngine(base: try ReferenceEngine()) },
    .init("works on a thread of its own", isSlow: true) { ThreadEngine(base: try ReferenceEngine()) },
    .init("gives another order each time") { ShufflingEngine(base: try ReferenceEngine()) },
    .init("has room for 64 MiB") { LimitedEngine(base: try ReferenceEngine()) },
    .init("keeps times in milliseconds") { MillisecondEngine(base: try ReferenceEngine()) },
    .init("gives up every other transaction", claiming: FaultyEngineCase.claimsOfTransactions) {
      GivesUpTransactions(base: try ReferenceEngine(claiming: FaultyEngineCase.claimsOfTransactions))
    },
    .init("claims less than it can", claiming: []) { try ReferenceEngine(claiming: []) },
  ]
}

@Suite("Unusual but correct engines")
struct UnusualEngineTests {
  @Test("Every check passes", arguments: UnusualEngine.all.enumerated().map { ($0, $1) })
  func passes(_ number: Int, _ unusual: UnusualEngine) async {
    let suite = ConformanceSuite(unusual.name, capabilities: unusual.capabilities, budget: .quick) { _ in
      try unusual.makeEngine()
    }
    // For a slow engine the long checks add up to minutes. Checks of sizes have separate unusual engines, and checks of
    // stores test the store.
    let checks = suite.checks.half(of: number).filter {
      TestRun.isExhaustive
        || !SizeFault.isOwn($0.id) && !$0.id.hasPrefix("store.")
          && !(unusual.isSlow && FaultyEngineCase.longChecks.contains($0.id))
    }
    let failures = await withTaskGroup { group in
      for check in checks { group.addTask { await check.outcome().failure } }
      return await group.reduce(into: [ConformanceFailure]()) { failures, failure in
        failures += [failure].compactMap { $0 }
      }
    }
    #expect(failures.isEmpty, "\(failures.map { "\($0.check): \($0.actual)" }.joined(separator: "\n"))")
  }
}

@Suite("Engines without snapshots")
struct EnginesWithoutSnapshotsTests {
  @Test(
    "An engine that reads page by page, each from the last key on, passes the check of lists beside changes",
    arguments: [PagewiseEngine.Call.allKeys, .allPairs, .scan])
  func pagesByKey(_ call: PagewiseEngine.Call) async throws {
    let claims: EngineCapabilities = [.atomicBatches, .orderedScans]
    let suite = ConformanceSuite("Pages", capabilities: claims, budget: .quick) { _ in
      PagewiseEngine(base: try ReferenceEngine(claiming: claims), size: 250, call: call)
    }
    try await #require(suite.checks.first { $0.id == "concurrency.everything-agrees" }).run()
  }
}

@Suite("Slow engines")
struct SlowEngineTests {
  /// Regression: the sync of a write counted towards the time within which readers must let it run.
  @Test("An engine on a slow disk passes the check of writes among readers")
  func slowDisk() async throws {
    var suite = ConformanceSuite("Slow disk", capabilities: .orderedScans, budget: .quick) { _ in
      SyncsSlowly(base: try ReferenceEngine(claiming: .orderedScans))
    }
    suite.longestTurn = .milliseconds(20)
    try await #require(suite.checks.first { $0.id == "cooperation.readAllData-gives-way" }).run()
  }

  @Test(
    "An engine with slow calls does not count as hanging",
    arguments: [
      ("cooperation.while-writing", 20_000), ("cooperation.while-reading", 1_500),
      ("concurrency.of-hundreds-of-tasks", 700),
    ])
  func oneCallAtATime(_ id: String, _ microseconds: Int) async throws {
    // A read of everything ends after those of all tasks have had their turns: after seconds even on an idle machine.
    let suite = ConformanceSuite(
      "Serial", capabilities: [], stallTimeout: .seconds(120), budget: .quick
    ) { _ in SerialEngine(each: .microseconds(microseconds)) }
    try await #require(suite.checks.first { $0.id == id }).run()
  }

  /// Regression: the check read in a loop until the engine was closed.
  @Test("An engine whose close() waits until no call is in progress passes the check of blocked threads")
  func closesWhenQuiet() async throws {
    let suite = ConformanceSuite("Quiet", capabilities: [], budget: .quick) { _ in
      ClosesWhenQuiet(base: try ReferenceEngine(claiming: []))
    }
    try await #require(suite.checks.first { $0.id == "cooperation.waits-elsewhere" }).run()
  }

  /// Regression: thousands of calls at the same time had to return.
  @Test("An engine whose calls time out while thousands of others wait passes the check of blocked threads")
  func timeouts() async throws {
    let suite = ConformanceSuite("Overloaded", capabilities: .networked, budget: .quick) { _ in
      TimesOutInAQueue(base: try ReferenceEngine(claiming: .networked))
    }
    try await #require(suite.checks.first { $0.id == "cooperation.while-writing" }).run()
  }

  /// Regression: it took longer than the check's limit for any engine, or for one that is closed at once.
  @Test(
    "An engine that closes its files slowly after its release does not fail the check of open files",
    arguments: [400, 0])
  func slowlyClosedFiles(_ milliseconds: Int) async throws {
    let claims = ReferenceEngine.promises.subtracting(.detectsCorruption)
    let suite = ConformanceSuite("Slow disk", capabilities: claims, budget: .quick) {
      try ClosesSlowly(
        base: try ReferenceEngine(claiming: claims), directory: $0, closingFor: .milliseconds(milliseconds))
    }
    try await #require(suite.checks.first { $0.id == "dropping.releases-files" }).run()
  }

  /// Regression: by default a call had a limit of 20 seconds, and half of the stall timeout at most.
  @Test("An engine that waits for its lock, and throws locked, does not count as hanging")
  func waitsForItsLock() async throws {
    let claims = ReferenceEngine.promises.subtracting(.detectsCorruption)
    let suite = ConformanceSuite(
      "Waits", capabilities: claims, stallTimeout: .seconds(24), budget: .quick
    ) {
      try await WaitsForItsLock(
        base: try ReferenceEngine(claiming: claims), directory: $0, waiting: .seconds(13))
    }
    try await #require(suite.checks.first { $0.id == "planted.directory" }).run()
  }

  /// Regression: reading all entries took longer than the limit of any call.
  @Test("An engine that is slow for each entry skips the check of 1,100 entries in corrupted files")
  func slowEntries() async throws {
    let suite = ConformanceSuite("Slow entries", capabilities: ReferenceEngine.promises, budget: .quick) {
      TakesTimeForEachEntry(base: try ReferenceEngine(directory: $0))
    }
    let check = try #require(suite.checks.first { $0.id == "corruption.of-many-found-by-verify" })
    let outcome = await check.outcome()
    guard case .skipped = outcome else {
      Issue.record("\(outcome)")
      return
    }
  }

  @Test("An engine whose scans start slowly does not fail for loading everything")
  func slowlyBegunScans() async throws {
    let suite = ConformanceSuite("Slow scans", capabilities: .orderedScans, budget: .quick) { _ in
      BeginsScansSlowly(base: try ReferenceEngine(claiming: .orderedScans))
    }
    let check = try #require(suite.checks.first { $0.id == "scan.costs-what-it-returns" })
    let outcome = await check.outcome()
    #expect(outcome.failure == nil, "\(String(describing: outcome.failure?.actual))")
  }
}

@Suite("Unusual feeds")
struct UnusualFeedTests {
  /// Regression: an element for an earlier change was attributed to one of the calls that must not yield any.
  @Test(
    "An engine whose feed also covers writes right before the subscription passes the check of reads")
  func announcesWhatCameBefore() async throws {
    let claims: EngineCapabilities = [.atomicBatches, .snapshotReads, .orderedScans, .changeFeed]
    let suite = ConformanceSuite("Looks now and then", capabilities: claims, budget: .quick) { _ in
      AnnouncesWhatCameBefore(base: try ReferenceEngine(claiming: claims))
    }
    let checks = suite.checks.filter { $0.id.hasPrefix("changes.silence-") }
    #expect(checks.count > 3)
    for check in checks { try await check.run() }
  }

  /// Regression: a batch of tens of thousands of entries was one step, which takes a slow engine minutes.
  @Test(
    "For an engine that is slow for each entry, the check of changes of large batches uses fewer entries")
  func slowBatches() async throws {
    let claims: EngineCapabilities = [.atomicBatches, .snapshotReads, .orderedScans, .changeFeed]
    let suite = ConformanceSuite("Slow batches", capabilities: claims, budget: .quick) { _ in
      TakesTimeForWrites(base: try ReferenceEngine(claiming: claims))
    }
    let check = try #require(suite.checks.first { $0.id == "changes.of-a-large-batch" })
    let result = await check.result()
    #expect(result.outcome == .passed)
    #expect(result.shortfall?.hasSuffix(" of 5000 entries of a batch") == true)
  }

  /// Regression: all writes together had the time limit of one element.
  @Test("A feed of slow writes passes the check of the last write")
  func announcesSlowWrites() async throws {
    let claims: EngineCapabilities = [.atomicBatches, .snapshotReads, .orderedScans, .changeFeed]
    let suite = ConformanceSuite(
      "Slow writes", capabilities: claims, stallTimeout: .seconds(16), budget: .quick
    ) { _ in WritesSlowlyAtFirst(base: try ReferenceEngine(claiming: claims)) }
    try await #require(suite.checks.first { $0.id == "changes.announce-the-latest" }).run()
  }
}

@Suite("A busy process")
struct BusyProcessTests {
  @Test("Events that wait for a thread of the cooperative pool do not count as lost", .ownThreads)
  func busyPool() async {
    // In a separate process, since it delays everything else in the process.
    await #expect(processExitsWith: .success) {
      let suite = ConformanceSuite("Busy", capabilities: []) { _ in
        EngineBesideBusyTasks(base: try ReferenceEngine())
      }
      let report = await Task(priority: .background) {
        await suite.run(only: ["store.events-before-loading"])
      }.value
      #expect(report.failures.isEmpty, "\(report.failures.map(\.actual))")
      #expect(report.results.count == 1)
    }
  }
}

@Suite("Misbehaving engines do not harm the kit")
struct MisbehaviorTests {
  /// Regression: the changes blocked all threads of the cooperative pool, so that nothing in the process continued.
  @Test(
    "An engine that blocks cancelled changes forever fails the check of their late effects, and the run continues",
    .ownThreads,
    .timeLimit(.minutes(60)))
  func blockedChanges() async {
    await #expect(processExitsWith: .success) {
      let suite = ConformanceSuite("Blocking", capabilities: [], stallTimeout: .seconds(1), budget: .quick) {
        _ in BlocksCancelledChanges(base: try ReferenceEngine(claiming: []))
      }
      let report = await suite.run(only: ["late.after-cancelled-calls"])
      #expect(report.failures.count == 1)
    }
  }

  private func failures(
    stallTimeout: Duration = .seconds(60), of rules: Set<ContractRule>,
    makeEngine: @escaping @Sendable (ReferenceEngine) -> any StorageEngine
  ) async -> [ConformanceFailure] {
    let suite = ConformanceSuite("Misbehaving", capabilities: [], stallTimeout: stallTimeout) { _ in
      makeEngine(try ReferenceEngine(claiming: []))
    }
    var failures: [ConformanceFailure] = []
    for check in suite.checks where rules.contains(check.rule) {
      failures += [await check.outcome().failure].compactMap { $0 }
    }
    return failures
  }

  @Test("A hundred thousand unexpected entries give a readable failure")
  func unexpectedEntries() async {
    let failures = await failures(of: [.k3, .d2, .r3]) { GivesFarTooMany(base: $0) }
    #expect(Set(failures.map(\.rule)) == [.k3, .d2, .r3])
    #expect(failures.allSatisfy { $0.actual.utf8.count < 2_000 })
  }

  @Test("Errors that are not a StorageError give a readable failure")
  func foreignErrors() async {
    let failures = await failures(of: [.k1, .w4, .c4, .o3]) { ThrowsForeignErrors(base: $0) }
    #expect(Set(failures.map(\.rule)) == [.k1, .w4, .c4, .o3])
    #expect(failures.allSatisfy { $0.actual.utf8.count < 2_000 })
  }

  @Test("Checks of files are skipped for an engine that leaves no file in its directory")
  func noFiles() async {
    let capabilities = ReferenceEngine.promises.union([.persistent, .detectsCorruption])
    let suite = ConformanceSuite("Misbehaving", capabilities: capabilities) { _ in
      try ReferenceEngine(claiming: capabilities)
    }
    let checks = suite.checks.filter { $0.id.hasPrefix("corruption.") || $0.id.hasPrefix("planted.") }
    #expect(checks.contains { $0.id == "corruption.anywhere" })
    for check in checks {
      let outcome = await check.outcome()
      #expect(outcome != .passed, "\(check.id)")
    }
  }

  @Test("A CancellationError without a cancellation is a failure, not a cancelled check")
  func cancellation() async {
    let failures = await failures(of: [.w1]) { ThrowsCancellation(base: $0) }
    #expect(failures.map(\.rule).contains(.w1))
    #expect(failures.contains { $0.actual.contains("CancellationError") })
  }
}
