import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import TestFixtures
import Testing

/// An engine or a store with a deliberate fault.
protocol FaultyCase: Sendable, CustomTestStringConvertible {
  var rule: ContractRule { get }
  /// The checks to run on it.
  var checks: [ConformanceCheck] { get }
}

extension FaultyEngineCase: FaultyCase {}
extension FaultyStoreCase: FaultyCase {}

/// The outcomes of the checks of faulty engines and stores. Each check runs once, however many tests need it.
actor CheckOutcomes {
  static let shared = CheckOutcomes()

  private var tasks: [String: Task<ConformanceOutcome, Never>] = [:]
  private var pickedChecks: [String: [ConformanceCheck]] = [:]

  /// The checks of a case. Selecting them takes a while, so it is done once.
  func checks(of faultyCase: any FaultyCase) -> [ConformanceCheck] {
    if let known = pickedChecks[faultyCase.testDescription] { return known }
    let checks = faultyCase.checks
    pickedChecks[faultyCase.testDescription] = checks
    return checks
  }

  func outcome(of check: ConformanceCheck, for faultyCase: any FaultyCase) async -> ConformanceOutcome {
    let key = "\(check.id) of \(faultyCase.testDescription)"
    let task = tasks[key] ?? Task { await check.outcome() }
    tasks[key] = task
    return await task.value
  }

  /// The outcome of each check by its identifier: up to the first that fails with the expected rule or, in an
  /// exhaustive run, all.
  func outcomes(of faultyCase: any FaultyCase) async -> [String: ConformanceOutcome] {
    var outcomes: [String: ConformanceOutcome] = [:]
    for check in checks(of: faultyCase) {
      let outcome = await outcome(of: check, for: faultyCase)
      outcomes[check.id] = outcome
      if outcome.failure?.rule == faultyCase.rule && !TestRun.isExhaustive { break }
    }
    return outcomes
  }
}

extension FaultyEngineCase {
  /// The checks to run on the engine: those of the rules that it breaks and, in an exhaustive run, those of all others,
  /// which it must pass.
  ///
  /// Not included are checks of stores, because no store can be better than its engine; checks of rule C5, which delay
  /// everything else in the process; searches, which have separate engines; and long checks of other rules. Each is
  /// made at the lower of the levels quick and standard that has it, and at standard in an exhaustive run.
  var checks: [ConformanceCheck] {
    let standard = checks(.standard)
    if TestRun.isExhaustive { return standard }
    let quick = checks(.quick)
    let names = Set(quick.map(\.id))
    return quick + standard.filter { !names.contains($0.id) }
  }

  /// The same at one level.
  func checks(_ level: ConformanceBudget.Level) -> [ConformanceCheck] {
    ConformanceSuite(
      name, capabilities: capabilities, stallTimeout: stallTimeout, budget: ConformanceBudget(level),
      makeEngine: makeEngine
    ).checks.filter { check in
      if check.rule.isForStores || check.rule == .c5 || Self.isSearch(check.id) { return false }
      if check.rule == rule { return true }
      return (TestRun.isExhaustive || also.contains(check.rule)) && !Self.longChecks.contains(check.id)
    }
  }

  /// Whether a check searches for faults of any kind. The tests of such checks are in separate folders, with their
  /// faulty engines.
  static func isSearch(_ id: String) -> Bool {
    [
      "model.", "linearizability.", "killed.", "processes.", "power.", "clock.", "life.", "crowd.", "late.",
      "fairness.", "changes.", "network.",
    ].contains { id.hasPrefix($0) }
      || SizeFault.isOwn(id)
      || [
        "corruption.at-random", "faults.full-disk-at-every-step", "faults.file-size-limit",
        "faults.no-descriptors-while-open", "opening.without-descriptors",
        "dropping.after-many-failed-openings",
        "faults.system-calls", "faults.failed-syncs", "sharing.every-answer", "opening.races",
        "opening.any-name",
        "opening.relative-path", "opening.twice-by-any-spelling", "dropping.beside-a-child-process",
        "store.follows-another-engine", "privacy.at-every-step",
      ].contains(id)
  }

  static let longChecks: Set<String> = [
    "values.64-mebibytes", "values.beyond-64-mebibytes", "values.beyond-64-mebibytes-in-batches",
    "values.of-megabytes", "write.beyond-10000-entries", "batches.of-any-size",
    "reads.of-100000-keys", "faults.full-disk",
    "faults.full-disk-and-batches",
    "keys.thousands-with-a-long-prefix", "scan.costs-what-it-returns", "corruption.anywhere", "closing.waits",
    "batches.appear-in-order", "reads.readAllData-returns-one-snapshot",
    "reads.readAllDataAndKeys-returns-one-snapshot",
    "reads.readAllEntries-returns-one-snapshot", "reads.scan-returns-one-snapshot",
    "reads.allKeys-returns-one-snapshot",
    "reads.readMany-returns-one-snapshot", "reads.readDataAndKeys-returns-one-snapshot",
    "reads.readEntries-returns-one-snapshot",
  ]
}

extension FaultyEngineCase {
  /// The failure of the engine that is made for a check of rule C5.
  static func failureOfCooperation(_ id: String) async -> ConformanceFailure? {
    guard let makeEngine = ofCooperation[id] else { return nil }
    var suite = ConformanceSuite("Blocking", capabilities: []) { _ in
      makeEngine(try ReferenceEngine(claiming: []))
    }
    // These engines never let a write run in between, however short the limit is.
    suite.longestTurn = .milliseconds(250)
    return await suite.checks.first { $0.id == id }?.outcome().failure
  }
}

@Suite("Faulty engines")
struct FaultyEngineTests {
  @Test(
    "Each faulty engine fails a check of its rule, and none of a rule that it follows",
    arguments: FaultyEngineCase.all.spread)
  func failsForItsRule(_ engineCase: FaultyEngineCase) async throws {
    let outcomes = await CheckOutcomes.shared.outcomes(of: engineCase)
    let failures = outcomes.values.compactMap(\.failure)
    let isUndecided = await CheckOutcomes.shared.checks(of: engineCase).contains { check in
      guard check.rule == engineCase.rule, case .skipped = outcomes[check.id] else { return false }
      return [.f1, .f3, .f4].contains(check.rule)
    }
    var failsForItsRule = failures.contains { $0.rule == engineCase.rule } || isUndecided
    // If tasks have to overlap at the right moment, several attempts may be necessary on a busy machine.
    for _ in 0..<20 where !failsForItsRule {
      for check in engineCase.checks(.standard)
      where (check.rule == engineCase.rule || engineCase.also.contains(check.rule)) && !failsForItsRule {
        failsForItsRule = await check.outcome().failure?.rule == engineCase.rule
      }
    }
    #expect(failsForItsRule)
    let unjustified = failures.filter { $0.rule != engineCase.rule && !engineCase.also.contains($0.rule) }
    #expect(
      unjustified.isEmpty,
      "\(unjustified.map { "\($0.rule) \($0.check): \($0.actual)" }.joined(separator: "\n"))")
  }

  @Test("Every check has an engine or a store that fails it")
  func everyCheckFails() async {
    // The checks that have failed, and those that were skipped or could not run.
    var done: Set<String> = []
    let faultyCases: [any FaultyCase] = FaultyEngineCase.all + FaultyStoreCase.all
    var found: [Finding] = []
    for faultyCase in faultyCases {
      let outcomes = await CheckOutcomes.shared.outcomes(of: faultyCase)
      done.formUnion(outcomes.filter { $0.value != .passed }.keys)
      let check = outcomes.first { $0.value.failure?.rule == faultyCase.rule }?.key
      found.append(Finding(faultyCase: faultyCase, check: check ?? ""))
    }
    let all: EngineCapabilities = EngineCapabilities.named.reduce(into: []) { $0.formUnion($1.capability) }
    // Checks of files do not apply to engines with a server.
    let checks = Set(
      [all, all.subtracting(.networked)].flatMap { capabilities in
        ConformanceSuite("", capabilities: capabilities, makeEngine: { _ in try ReferenceEngine() }).checks
          .map(\.id)
      })
    // Checks of blocked threads have a separate test.
    var idle = checks.sorted().filter {
      !done.contains($0) && FaultyEngineCase.ofCooperation[$0] == nil && !FaultyEngineCase.isSearch($0)
    }
    // Runs the checks that did not run because an earlier check of the same engine failed. Several at a time, since all
    // other tests may have ended by then.
    idle = await withTaskGroup(of: [String].self, returning: [String].self) { [idle, found] group in
      let width = 4
      for part in 0..<width {
        group.addTask {
          var left: [String] = []
          for (index, id) in idle.enumerated() where index % width == part {
            if await !Self.fails(id, found) { left.append(id) }
          }
          return left
        }
      }
      return await group.reduce(into: [String]()) { $0 += $1 }
    }
    // If readers have to run at the right moment, several attempts may be necessary on a busy machine.
    for _ in 0..<20 where !idle.isEmpty {
      for engineCase in FaultyEngineCase.all {
        for check in engineCase.checks(.standard)
        where idle.contains(check.id)
          && (check.rule == engineCase.rule || engineCase.also.contains(check.rule))
        {
          if await check.outcome().failure != nil { idle.removeAll { $0 == check.id } }
        }
      }
    }
    #expect(idle.isEmpty, "\(idle.joined(separator: "\n"))")
  }

  /// A faulty engine or store, and the check that it has failed.
  private struct Finding: Sendable {
    let faultyCase: any FaultyCase
    let check: String
  }

  /// Whether an engine or a store fails the check. Begins with those that have failed a check of a similar name, since
  /// they are more likely to.
  private static func fails(_ id: String, _ found: [Finding]) async -> Bool {
    let bySimilarity = found.map {
      (similarity: $0.check.commonPrefix(with: id).count, faultyCase: $0.faultyCase)
    }
    .sorted { $0.similarity > $1.similarity }
    for (_, faultyCase) in bySimilarity {
      for check in await CheckOutcomes.shared.checks(of: faultyCase) where check.id == id {
        if await CheckOutcomes.shared.outcome(of: check, for: faultyCase) != .passed { return true }
      }
    }
    return false
  }

  @Test(
    "An engine that blocks threads of the cooperative pool breaks rule C5", .ownThreads,
    arguments: FaultyEngineCase.ofCooperation.keys.sorted())
  func blocking(_ id: String) async {
    // In a separate process, since it delays everything else in the process.
    await #expect(processExitsWith: .success) { [id = id as String] in
      // On a machine that is busy with all the other tests, several attempts may be necessary.
      var rule: ContractRule?
      for _ in 0..<100 where rule == nil { rule = await FaultyEngineCase.failureOfCooperation(id)?.rule }
      #expect(rule == .c5)
    }
  }

  @Test(
    "A call that blocks its caller's thread is named", .ownThreads, arguments: BlocksOneCall.Call.allCases)
  func blockingCall(_ call: BlocksOneCall.Call) async {
    // In a separate process, see above.
    await #expect(processExitsWith: .success) { [name = call.rawValue as String] in
      let call = try #require(BlocksOneCall.Call(rawValue: name))
      var named: [String] = []
      for _ in 0..<100 {
        let claims: EngineCapabilities = [.atomicBatches, .transactions, .changeFeed]
        let suite = ConformanceSuite("Blocking", capabilities: claims) { _ in
          BlocksOneCall(base: try ReferenceEngine(claiming: claims), call: call)
        }
        let check = try #require(suite.checks.first { $0.id == "cooperation.waits-elsewhere" })
        guard let failure = await check.outcome().failure else { continue }
        named.append(failure.actual)
        if failure.actual.contains("calls of \(name) blocked") { break }
      }
      #expect(named.last?.contains("calls of \(name) blocked") == true, "\(named)")
    }
  }

  @Test("Every rule has an engine or a store that breaks it, and no two cases have the same name")
  func isComplete() {
    let broken = Set(FaultyEngineCase.all.map(\.rule) + FaultyStoreCase.all.map(\.rule))
      .union(ChangeFaultCase.all.map(\.rule)).union(NetworkFaultCase.all.map(\.rule)).union([.c5, .o6])
    #expect(broken == Set(ContractRule.allCases))
    #expect(FaultyEngineCase.all.count >= 80)
    #expect(Set(FaultyEngineCase.all.map(\.testDescription)).count == FaultyEngineCase.all.count)
  }
}
