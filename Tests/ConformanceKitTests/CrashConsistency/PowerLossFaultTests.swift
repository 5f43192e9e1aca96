import Foundation
import FaultyEngineWorker
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

/// An engine that fails when the machine loses power.
struct PowerLossFaultCase: Sendable, CustomTestStringConvertible {
  let name: String
  /// One of these rules is broken, depending on the moment of the power cut.
  let rules: Set<ContractRule>
  let fault: PowerLossFaultEngine.Fault?
  let keepsLog: Bool
  /// Whether it claims that writes survive a power cut.
  let isDurable: Bool

  var testDescription: String { name }

  init(
    _ name: String, _ fault: PowerLossFaultEngine.Fault? = nil, keepsLog: Bool, isDurable: Bool = true,
    breaking rules: Set<ContractRule>
  ) {
    self.isDurable = isDurable
    (self.name, self.fault, self.keepsLog, self.rules) = (name, fault, keepsLog, rules)
  }

  /// Engines that lose batches, or keep part of one.
  static let ofPowerCuts: [PowerLossFaultCase] = [
    .init("never syncs", .neverSyncs, keepsLog: true, breaking: [.w6]),
    .init("does not sync the directory of a new file", .forgetsTheDirectory, keepsLog: true, breaking: [.w6]),
    .init("does not sync the parents of its directory", .forgetsItsParents, keepsLog: true, breaking: [.w6]),
    .init("syncs when the next write comes", .acknowledgesBeforeTheSync, keepsLog: true, breaking: [.w6]),
    .init("does not sync after writes of many", .forgetsManyWrites, keepsLog: true, breaking: [.w6]),
    .init("does not sync after removals of many", .forgetsManyRemovals, keepsLog: true, breaking: [.w6]),
    .init("does not sync after entries of others", .forgetsImports, keepsLog: true, breaking: [.w6]),
    .init("does not sync after transactions", .forgetsTransactions, keepsLog: true, breaking: [.w6]),
    .init("takes a torn batch for a whole one", .takesTornTails, keepsLog: true, breaking: [.w4, .w6]),
    .init(
      "renames a file before it has been synced", .renamesBeforeTheSync, keepsLog: false, breaking: [.w6]),
    .init("does not sync the directory after a rename", .forgetsTheRename, keepsLog: false, breaking: [.w6]),
    .init("overwrites its file in place", .overwritesInPlace, keepsLog: false, breaking: [.w6]),
  ]

  /// Engines that only claim that all but the last batches survive, each as a whole, which is not the case.
  static let ofProcesses: [PowerLossFaultCase] = [
    .init(
      "takes a torn batch for a whole one, and never syncs", .takesTornTailsUnsynced, keepsLog: true,
      isDurable: false, breaking: [.w4, .w6]),
    .init("refuses a log with a hole", .refusesHoles, keepsLog: true, isDurable: false, breaking: [.w6]),
    .init("goes on behind a hole", .skipsHoles, keepsLog: true, isDurable: false, breaking: [.w6, .w4, .r6]),
  ]

  /// Engines that lose changes once their log has been compacted.
  static let ofCompactions: [PowerLossFaultCase] = [
    .init("does not sync a compacted log", .compactsUnsynced, keepsLog: true, breaking: [.w6]),
    .init(
      "does not sync the directory of a compacted log", .forgetsCompactedNames, keepsLog: true,
      breaking: [.w6]),
    .init(
      "removes its log before the compacted one has the name", .removesBeforeRenaming, keepsLog: true,
      breaking: [.w6]),
  ]

  /// Correct engines.
  static let careful: [PowerLossFaultCase] = [
    .init("never syncs, and says so", .neverSyncs, keepsLog: true, isDurable: false, breaking: []),
    .init("keeps a log", keepsLog: true, breaking: []),
    .init("writes a new file for each batch", keepsLog: false, breaking: []),
  ]

  /// - Parameter wrap: Wraps the engine in the test process. The worker uses the engine itself.
  func suite(
    _ level: ConformanceBudget.Level = .standard,
    wrap: @escaping @Sendable (PowerLossFaultEngine) -> any StorageEngine = { $0 }
  ) -> ConformanceSuite {
    let arguments =
      ["powerLossFault", keepsLog ? "log" : "copy", isDurable ? "durable" : "fast"]
      + [fault?.rawValue].compactMap { $0 }
    var budget = ConformanceBudget(level)
    // Faulty engines fail early.
    if fault == nil, level == .standard, !TestRun.isExhaustive { budget.powerCuts = 60 }
    return ConformanceSuite(
      name, capabilities: PowerLossFaultEngine.promises(isDurable: isDurable), budget: budget,
      worker: ConformanceWorker(product: "FaultyEngineWorker", arguments: arguments)
    ) { [keepsLog, isDurable, fault] in
      wrap(try PowerLossFaultEngine(directory: $0, keepsLog: keepsLog, isDurable: isDurable, fault: fault))
    }
  }

  /// An engine that passes as long as there is space.
  static let ofFullDisks = PowerLossFaultCase(
    "compacts its log without checking that it can", .compactsWithoutChecking, keepsLog: true,
    breaking: [.f1])

  func outcome(
    of check: String, _ level: ConformanceBudget.Level = .standard
  ) async throws -> ConformanceOutcome {
    try await #require(suite(level).checks.first { $0.id == check }).outcome()
  }
}

@Suite("Power cuts", .enabled(if: (try? Strace()) != nil, "strace records what engines do"))
struct PowerCutTests {
  @Test(
    "An engine that loses acknowledged changes fails",
    arguments: PowerLossFaultCase.ofPowerCuts + PowerLossFaultCase.ofProcesses)
  func losesWrites(_ engineCase: PowerLossFaultCase) async throws {
    let failure = try #require(
      try await engineCase.outcome(of: "power.cut-while-writing-batches").failure, "It has passed.")
    #expect(engineCase.rules.contains(failure.rule), "\(failure.actual)")
    #expect(failure.actual.contains("after a power cut following operation"))
  }

  @Test("An engine that loses changes with a compaction fails", arguments: PowerLossFaultCase.ofCompactions)
  func compactions(_ engineCase: PowerLossFaultCase) async throws {
    let failure = try #require(
      try await engineCase.outcome(of: "power.cut-while-overwriting", .quick).failure, "It has passed.")
    #expect(engineCase.rules.contains(failure.rule), "\(failure.actual)")
  }

  @Test("An engine that syncs correctly passes", arguments: PowerLossFaultCase.careful)
  func acquits(_ engineCase: PowerLossFaultCase) async throws {
    #expect(try await engineCase.outcome(of: "power.cut-while-writing-batches") == .passed)
    #expect(try await engineCase.outcome(of: "power.cut-while-overwriting", .quick) == .passed)
    if engineCase.isDurable {
      #expect(try await engineCase.outcome(of: "power.cut-while-recovering") == .passed)
    }
  }

  @Test("An engine that syncs too late fails if the power is cut again after a recovery")
  func recovery() async throws {
    let engineCase = PowerLossFaultCase.ofPowerCuts[3]
    #expect(try await engineCase.outcome(of: "power.cut-while-recovering").failure?.rule == .w6)
  }
}

@Suite("Truncated files")
struct LostEndTests {
  private static let ids = ["corruption.shortened-file", "corruption.truncated-file"]

  @Test(
    "An engine that never syncs, and does not claim durableWrites, passes without its last batches",
    arguments: ids)
  func unsynced(_ id: String) async throws {
    #expect(try await PowerLossFaultCase.careful[0].outcome(of: id) == .passed)
  }

  @Test("An engine that shows half of the last batch after a power cut fails")
  func torn() async throws {
    let engineCase = PowerLossFaultCase.ofProcesses[0]
    #expect(try await engineCase.outcome(of: "corruption.shortened-file").failure?.rule == .f2)
  }

  @Test("An engine that syncs fails without its last batches", arguments: ids)
  func synced(_ id: String) async throws {
    #expect(try await PowerLossFaultCase.careful[1].outcome(of: id).failure?.rule == .f2)
  }
}

@Suite("Compactions on a full disk")
struct FullDiskCompactionTests {
  @Test("An engine whose compaction loses everything on a full disk fails")
  func compaction() async throws {
    let engineCase = PowerLossFaultCase.ofFullDisks
    switch try await engineCase.outcome(of: "faults.full-disk-at-every-step") {
    case .failed(let failure):
      #expect(engineCase.rules.contains(failure.rule), "\(failure)")
      #expect(failure.actual.contains("400 overwrites"), "\(failure.actual)")
    // A small file system is not available everywhere.
    case .skipped(let reason): #expect(!reason.isEmpty)
    case .passed, .couldNotRun: Issue.record("It has not failed.")
    }
  }
}
