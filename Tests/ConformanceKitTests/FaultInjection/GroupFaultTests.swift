import FaultyEngineWorker
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

/// Engines that handle every failed call correctly as long as only one task uses them.
@Suite("Engines whose failed calls affect other tasks", .enabled(if: canInterceptCalls))
struct GroupFaultTests {
  private static let rules: [GroupFaultEngine.Fault: Set<ContractRule>] = [
    // A change that threw may exist after the second attempt, or have been made twice.
    .repeatsGroups: [.t1, .f4], .keepsChangesOfFailedBodies: [.t1], .undoesWholeGroups: [.w6],
    .answersOnlyTheFirst: [.w6], .failsWholeGroups: [.f4], .findsNothingWhereReadsFail: [.r4],
    // A half-written change may belong to a batch or to a transaction.
    .keepsHalfOfFailedGroups: [.w4, .t1],
  ]

  private static func outcome(
    of id: String, _ fault: GroupFaultEngine.Fault?, seed: UInt64 = 1
  ) async throws -> ConformanceOutcome {
    var budget = ConformanceBudget()
    budget.seed = seed
    let suite = ConformanceSuite(
      "groups", capabilities: SystemFaultEngine.promises, stallTimeout: .seconds(120), budget: budget,
      worker: ConformanceWorker(
        product: "FaultyEngineWorker", arguments: ["groupFault"] + (fault.map { [$0.rawValue] } ?? []))
    ) { try GroupFaultEngine(directory: $0, fault: fault) }
    return try await #require(suite.checks.first { $0.id == id }).outcome()
  }

  @Test("Each faulty engine fails among several tasks", arguments: GroupFaultEngine.Fault.allCases)
  func failsAmongSeveralTasks(_ fault: GroupFaultEngine.Fault) async throws {
    var outcome = ConformanceOutcome.passed
    for seed in UInt64(1)...20 where outcome == .passed {
      outcome = try await Self.outcome(of: "faults.concurrent-changes", fault, seed: seed)
    }
    outcome.expectFailure(of: try #require(Self.rules[fault]))
  }

  @Test("A correct engine passes", arguments: ["faults.system-calls", "faults.concurrent-changes"])
  func passes(_ id: String) async throws {
    try await Self.outcome(of: id, nil).expectPass()
  }
}
