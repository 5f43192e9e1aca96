import Foundation
import FaultyEngineWorker
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

/// An engine that fails when its process is killed, or beside another process.
struct CrashFaultCase: Sendable, CustomTestStringConvertible {
  let name: String
  /// One of these rules is broken, depending on the moment of the kill.
  let rules: Set<ContractRule>
  /// The checks that it fails, possibly after several attempts.
  let checks: Set<String>
  let fault: CrashFaultEngine.Fault
  /// Whether it allows several processes.
  let isShared: Bool
  /// Whether it claims to.
  let claimsToShare: Bool

  var testDescription: String { "\(rules.map(\.rawValue).sorted().joined(separator: ", ")): \(name)" }

  init(
    _ rules: Set<ContractRule>, _ name: String, _ fault: CrashFaultEngine.Fault, by checks: Set<String>,
    isShared: Bool = false, claimsToShare: Bool? = nil
  ) {
    (self.rules, self.name, self.fault, self.checks) = (rules, name, fault, checks)
    (self.isShared, self.claimsToShare) = (isShared, claimsToShare ?? isShared)
  }

  /// Engines that fail when their process is killed.
  static let ofKills: [CrashFaultCase] = [
    .init(
      [.w6], "writes when the next write comes", .acknowledgesEarly,
      by: [
        "killed.while-writing-batches", "killed.while-writing-one-by-one", "killed.while-chains-run",
        "killed.while-transactions-run",
      ]),
    .init(
      [.w6], "writes entries of another engine when the next write comes", .acknowledgesImportsEarly,
      by: ["killed.while-importing"]),
    .init(
      [.w6], "writes entries of another engine in a transaction when the next write comes",
      .acknowledgesImportsOfBodiesEarly, by: ["killed.while-transactions-run"]),
    .init(
      [.w6, .r6], "has one task write for others that do not wait", .acknowledgesTheGroupEarly,
      by: ["killed.while-several-tasks-write"]),
    .init(
      [.w6, .r6], "has one task write the batches of others that do not wait",
      .acknowledgesGroupedBatchesEarly, by: ["killed.while-several-tasks-write"]),
    .init(
      [.w6], "notes removals with the next write", .notesRemovalsLater,
      by: ["killed.while-writing-one-by-one"]),
    .init(
      [.w6], "keeps entries with long keys until it is closed", .keepsLongKeysUntilClosed,
      by: ["killed.while-writing-one-by-one", "killed.while-several-tasks-write"]),
    .init(
      [.w4, .s3], "logs a batch entry by entry", .logsEntryByEntry,
      by: ["killed.while-writing-batches", "killed.while-chains-run", "killed.while-transactions-run"]),
    .init(
      [.w4], "logs large batches in parts", .logsLargeBatchesInParts,
      by: ["killed.while-writing-large-batches"]),
    .init(
      [.w4], "logs removals of thousands in parts", .logsLargeRemovalsInParts,
      by: ["killed.while-writing-large-batches"]),
    .init([.r6, .s4], "recovers in the order of keys", .losesTheOrder, by: ["killed.while-writing-batches"]),
    .init(
      [.w2], "recovers with the time of the recovery", .makesUpTimes, by: ["killed.while-writing-one-by-one"]),
    .init(
      [.w2], "dates what it replays after a kill, for good", .datesWhatItReplays,
      by: ["killed.while-writing-one-by-one"]),
    .init(
      [.w6, .w4, .w2], "rewrites its file in place when it opens it", .rewritesInPlace,
      by: ["killed.while-opening"]),
    .init(
      [.w6, .s3], "refuses a file that ends in the middle of a line", .refusesTornLines,
      by: ["killed.while-writing-batches"]),
    .init(
      [.w6, .s3], "traps when a file ends in the middle of a line", .trapsOnTornLines,
      by: ["killed.while-writing-batches"]),
    .init(
      [.w6, .s3, .c3], "keeps a lock file when it is killed", .leavesItsLock,
      by: ["killed.while-writing-batches", "processes.killed-holder"]),
  ]

  /// Engines that fail beside another process.
  static let ofTwoProcesses: [CrashFaultCase] = [
    .init([.c3], "has no lock", .hasNoLock, by: ["processes.second-opening"]),
    .init(
      [.c3], "has no lock any more when it has verified its files", .unlocksWhenVerifying,
      by: ["processes.second-opening"]),
    .init(
      [.c3], "has no lock any more when everything has been removed", .unlocksWhenEmptied,
      by: ["processes.second-opening"]),
    .init([.o2], "does not say what is locked", .locksWithoutName, by: ["processes.second-opening"]),
    .init([.c3, .w6], "keeps its lock when it is closed", .keepsItsLock, by: ["processes.second-opening"]),
    .init(
      [.c3], "says that it can be shared, and cannot", .prints, by: ["processes.second-opening"],
      claimsToShare: true),
    .init(
      [.c3], "can be shared, and does not say so", .prints, by: ["processes.second-opening"], isShared: true,
      claimsToShare: false),
    .init(
      [.c3, .w6, .s3], "leaves the lock of a call when it is killed", .leavesLocksOfCalls,
      by: ["processes.outlive-each-other", "processes.outlive-each-other-in-transactions"], isShared: true),
    .init(
      [.t1, .c3], "runs the bodies of transactions without a lock", .runsBodiesUnlocked,
      by: ["processes.transfers", "linearizability.processes"], isShared: true),
    .init(
      [.c3, .w6, .w4, .s3, .r6, .w2, .s4], "appends where the file ended when it last looked",
      .overwritesOthers,
      by: ["processes.see-each-others-writes", "processes.write-at-the-same-time"], isShared: true),
    .init(
      [.c3, .t1], "looks at its file only when it opens it", .looksOnlyWhenOpening,
      by: ["processes.see-each-others-writes", "linearizability.processes"], isShared: true),
  ]
}

extension ConformanceSuite {
  /// A suite with a worker for an engine that may have a fault.
  static func crashFault(
    _ name: String, isShared: Bool, claimsToShare: Bool? = nil, fault: CrashFaultEngine.Fault? = nil,
    kills: Int = 30, stallTimeout: Duration = .seconds(120)
  ) -> ConformanceSuite {
    var budget = ConformanceBudget()
    budget.kills = kills
    let arguments = (isShared ? ["shared"] : []) + (fault.map { [$0.rawValue] } ?? [])
    return ConformanceSuite(
      name, capabilities: CrashFaultEngine.promises(isShared: claimsToShare ?? isShared),
      stallTimeout: stallTimeout,
      budget: budget,
      worker: ConformanceWorker(product: "FaultyEngineWorker", arguments: arguments)
    ) {
      try CrashFaultEngine(directory: $0, isShared: isShared, fault: fault == .trapsOnTornLines ? nil : fault)
    }
  }

  /// The checks of killed and concurrent processes.
  var checksOfProcesses: [ConformanceCheck] {
    checks.filter {
      !SharedPlaceFaultCase.ids.contains($0.id) && !ChangeFaultCase.isOwn($0.id)
        && ($0.id.hasPrefix("killed.") || $0.id.hasPrefix("processes.")
          || $0.id == "linearizability.processes")
    }
  }
}

@Suite("Engines with crash faults")
struct CrashFaultTests {
  @Test(
    "Each faulty engine fails the checks that are named for it",
    arguments: (CrashFaultCase.ofKills + CrashFaultCase.ofTwoProcesses).spread)
  func failsForItsRule(_ engineCase: CrashFaultCase) async throws {
    let suite = ConformanceSuite.crashFault(
      engineCase.name, isShared: engineCase.isShared, claimsToShare: engineCase.claimsToShare,
      fault: engineCase.fault)
    var failures: [ConformanceFailure] = []
    var missed = engineCase.checks
    // Processes are killed at random moments, so several attempts may be necessary.
    for _ in 0..<20 where !missed.isEmpty {
      for check in suite.checks where missed.contains(check.id) {
        failures += [await check.outcome().failure].compactMap { $0 }
      }
      missed.subtract(failures.map(\.check))
    }
    #expect(missed.isEmpty)
    let unjustified = failures.filter { !engineCase.rules.contains($0.rule) }
    #expect(
      unjustified.isEmpty,
      "\(unjustified.map { "\($0.rule) \($0.check): \($0.actual)" }.joined(separator: "\n"))")
  }

  @Test("Every check of these faults has an engine that fails it")
  func isComplete() {
    let failing = (CrashFaultCase.ofKills + CrashFaultCase.ofTwoProcesses).reduce(into: Set()) {
      $0.formUnion($1.checks)
    }
    let checks = ConformanceSuite.crashFault("", isShared: true).checksOfProcesses.map(\.id)
    #expect(Set(checks).subtracting(failing) == [])
  }

  @Test(
    "A correct engine passes, for one process",
    arguments: ConformanceSuite.crashFault("Log", isShared: false, kills: TestRun.count(4, exhaustive: 10))
      .checksOfProcesses)
  func passesAlone(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test(
    "A correct engine passes, for several processes, even if it prints",
    arguments: ConformanceSuite.crashFault(
      "Shared log", isShared: true, fault: .prints, kills: TestRun.count(4, exhaustive: 10)
    )
    .checksOfProcesses)
  func passesShared(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test("An engine with six methods, whose batches may be partly visible, passes")
  func passesWithoutBatches() async {
    var budget = ConformanceBudget()
    budget.kills = TestRun.count(4, exhaustive: budget.kills)
    let suite = ConformanceSuite(
      "Entry by entry", capabilities: .persistent, budget: budget,
      worker: ConformanceWorker(
        product: "FaultyEngineWorker", arguments: [CrashFaultEngine.Fault.logsEntryByEntry.rawValue])
    ) { try CrashFaultEngine(directory: $0, fault: .logsEntryByEntry) }
    await suite.checksOfProcesses.runAll()
  }
}
