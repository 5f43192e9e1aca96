import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import TestFixtures
import Testing

@Suite("A suite and its report")
struct SuiteTests {
  private func memory(
    _ capabilities: EngineCapabilities = [], stallTimeout: Duration = .seconds(120),
    makeEngine: @escaping @Sendable (ReferenceEngine) -> any StorageEngine = { $0 }
  ) -> ConformanceSuite {
    ConformanceSuite(
      "Memory", capabilities: capabilities, stallTimeout: stallTimeout, budget: .quick
    ) { _ in
      makeEngine(try ReferenceEngine(claiming: capabilities))
    }
  }

  @Test("The capabilities of an engine determine its checks")
  func capabilitiesDecide() {
    let none = Set(memory().checks.map(\.id))
    for (name, capability) in EngineCapabilities.named {
      let more = Set(memory(capability).checks.map(\.id))
      #expect(more.isSuperset(of: none))
      #expect(more.subtracting(none).contains("capabilities.\(name)"))
    }
    let rules = Set(memory().checks.map(\.rule))
    #expect(rules.isDisjoint(with: [.w6, .c2, .o1, .o2, .o4, .f1, .f3, .t1, .t2, .t3, .t4, .t5]))
    #expect(rules.isDisjoint(with: [.x1, .x2, .x3, .x4, .x5]))
    #expect(memory(.persistent).checks.contains { $0.id == "write.is-read-back" })
  }

  @Test("Every rule has a check")
  func everyRule() {
    let all: EngineCapabilities = EngineCapabilities.named.reduce(into: []) { $0.formUnion($1.capability) }
    // No engine with a server has files.
    let suites = [memory(all), memory(all.subtracting(.networked))]
    let checks = suites.flatMap { $0.checks + $0.checksLeftOut }
    #expect(Set(checks.map(\.rule)) == Set(ContractRule.allCases))
  }

  @Test("No two checks have the same name")
  func uniqueNames() {
    let all: EngineCapabilities = EngineCapabilities.named.reduce(into: []) { $0.formUnion($1.capability) }
    let ids = (memory(all).checks + memory(all).checksLeftOut).map(\.id)
    #expect(Set(ids).count == ids.count)
  }

  @Test("A check removes its directory, whether the engine passes, fails or hangs")
  func cleansUp() async throws {
    let parent = FileManager.default.temporaryDirectory.appending(path: "kit-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: parent) }
    for fault in [nil, ReferenceEngine.Fault.keepsFileOpen, .sharesNothing, .startsAnewWhenCorrupted] {
      let suite = ConformanceSuite(
        "File", capabilities: .persistent, workingDirectory: parent, budget: .quick
      ) {
        try ReferenceEngine(directory: $0, fault: fault)
      }
      // Directories are removed in one place, whatever a check has created, so one engine is enough for long checks.
      let checks = suite.checks.filter { check in
        let isLong = FaultyEngineCase.longChecks.contains(check.id) || FaultyEngineCase.isSearch(check.id)
        return ["C2", "O4", "F1", "F2", "W6"].contains(check.rule.rawValue)
          && (fault == nil || TestRun.isExhaustive || !isLong)
      }
      for check in checks { _ = await check.outcome() }
    }
    let hanging = ConformanceSuite(
      "Hanging", capabilities: .persistent, workingDirectory: parent, stallTimeout: .milliseconds(200)
    ) { Hangs(base: try ReferenceEngine(directory: $0)) }
    for check in hanging.checks where check.rule == .l2 { _ = await check.outcome() }
    #expect(try FileManager.default.contentsOfDirectory(atPath: parent.path(percentEncoded: false)) == [])
  }

  @Test("An engine that hangs fails once the stall timeout is over")
  func hanging() async throws {
    let suite = memory(stallTimeout: .milliseconds(200)) { Hangs(base: $0) }
    let check = try #require(suite.checks.first { $0.id == "counting.after-changes" })
    let failure = try #require(await check.outcome().failure)
    #expect(failure.rule == .l2)
    #expect(failure.actual.contains("0.2 seconds"))
  }

  @Test("An engine that cannot be opened fails, with the error that it threw")
  func cannotOpen() async throws {
    let suite = ConformanceSuite("Closed", capabilities: []) { _ in
      throw StorageError(.io, "There is no such place.")
    }
    let check = try #require(suite.checks.first { $0.rule == .w1 })
    let failure = await #expect(throws: ConformanceFailure.self) { try await check.run() }
    #expect(failure?.actual == "opening the engine threw io: There is no such place.")
  }

  @Test(
    "A failure contains the whole path in an error of the engine, however long, and little else of a long error",
    arguments: [0, 10_000], [0, 10_000])
  func longPath(before: Int, after: Int) async throws {
    let path = String(repeating: "/a directory", count: 333) + "/end"
    let message =
      String(repeating: "and/or ", count: before / 7) + path + String(repeating: " why", count: after / 4)
    let suite = ConformanceSuite("Closed", capabilities: []) { _ in throw StorageError(.io, message) }
    let check = try #require(suite.checks.first { $0.rule == .w1 })
    let failure = try #require(await check.outcome().failure)
    #expect(failure.actual.contains(path))
    #expect(failure.actual.count < 6_000)
  }

  @Test("A failure says in one paragraph which rule is broken, what was expected and what happened")
  func readsWell() async throws {
    let suite = memory { RenewsCreatedAt(base: $0) }
    let check = try #require(suite.checks.first { $0.id == "write.overwrite-keeps-created-at" })
    let failure = try #require(await check.outcome().failure)
    #expect(failure.rule == .w2)
    #expect(failure.check == check.id)
    let text = String(describing: failure)
    #expect(
      text.hasPrefix("Rule W2 is broken (write.overwrite-keeps-created-at). Expected: an overwrite by "))
    #expect(text.contains("But createdAt(key:) of \"first by write\" returned a time"))
    #expect(text.hasSuffix(ContractRule.w2.summary))
    #expect(!text.contains("\n"))
  }

  @Test("An unexpected error is part of what happened")
  func unexpectedError() async throws {
    let suite = memory { RefusesEmptyBatches(base: $0) }
    let check = try #require(suite.checks.first { $0.id == "batches.empty" })
    let failure = try #require(await check.outcome().failure)
    #expect(failure.actual == "remove(keys:) of 0 threw io: There is nothing to remove.")
  }

  @Test("A run reports every check in the order of the contract, and its progress")
  func runs() async throws {
    let suite = memory { CountsOverwrites(base: $0) }
    let names = MutexProtected<[String]>([])
    // Without long checks, whose reports are made in the same way.
    let chosen = suite.checks.map(\.id).filter { id in
      !FaultyEngineCase.isSearch(id) && !FaultyEngineCase.longChecks.contains(id)
        && !["store.", "cooperation."].contains { id.hasPrefix($0) }
    }
    let report = await suite.run(only: TestRun.isExhaustive ? nil : Set(chosen)) { progress in
      names.withLock { $0.append(progress.current?.id ?? "end \(progress.completed) of \(progress.total)") }
    }
    let ids = report.results.map(\.check)
    let leftOut = suite.checksLeftOut.map(\.id)
    #expect(
      ids.filter { !leftOut.contains($0) } == (TestRun.isExhaustive ? suite.checks.map(\.id) : chosen))
    #expect(names.withLock { $0 } == ids + ["end \(ids.count) of \(ids.count)"])
    let order = report.results.compactMap { ContractRule.allCases.firstIndex(of: $0.rule) }
    #expect(order == order.sorted())
    #expect(report.brokenRules == [.l2])
    #expect(!report.isConforming)
    #expect(report.passedCount + report.failures.count + report.skipped.count == ids.count)
    #expect(report.description.contains("failed: Rule L2 is broken"))
  }

  @Test("A report survives JSON")
  func json() async throws {
    let suite = ConformanceSuite(
      "File", capabilities: .persistent, stallTimeout: .seconds(120), budget: .quick
    ) {
      try ReferenceEngine(directory: $0, fault: .sharesNothing, claiming: .persistent)
    }
    let rules: Set<ContractRule> = [.w1, .c2, .o4]
    let report = await suite.run(only: Set(suite.checks.filter { rules.contains($0.rule) }.map(\.id)))
    let decoded = try JSONDecoder().decode(ConformanceReport.self, from: JSONEncoder().encode(report))
    #expect(decoded == report)
    #expect(decoded.brokenRules == [.c2], "\(report)")
  }

  @Test("A check whose task is cancelled throws CancellationError and fails no engine")
  func cancelled() async throws {
    let check = try #require(memory().checks.first)
    let task = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      try await check.run()
    }
    await #expect(throws: CancellationError.self) { try await task.value }
  }
}
