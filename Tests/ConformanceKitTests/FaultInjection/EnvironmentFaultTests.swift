import Foundation
import FaultyEngineWorker
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

/// An engine that fails if a file is corrupted, a resource is exhausted, permission is denied, or the clock is set
/// back.
struct EnvironmentFaultCase: Sendable, CustomTestStringConvertible {
  let rule: ContractRule
  let name: String
  let fault: EnvironmentFaultEngine.Fault
  /// The checks that it fails, possibly after several attempts.
  let checks: Set<String>

  var testDescription: String { "\(rule): \(name)" }

  init(_ rule: ContractRule, _ name: String, _ fault: EnvironmentFaultEngine.Fault, by checks: String...) {
    (self.rule, self.name, self.fault, self.checks) = (rule, name, fault, Set(checks))
  }

  static let all: [EnvironmentFaultCase] = [
    .init(
      .f2, "traps on corruption", .trapsOnCorruption, by: "corruption.at-random", "corruption.zeroed-header",
      "corruption.anywhere", "corruption.found-by-verify", "corruption.of-many-found-by-verify"
    ),
    .init(.f2, "hangs on corruption", .hangsOnCorruption, by: "corruption.replaced-file"),
    .init(
      .f2, "starts empty when corrupted", .emptiesOnCorruption, by: "corruption.at-random",
      "corruption.truncated-file", "corruption.shortened-file"),
    .init(.f2, "does not look at sums", .ignoresSums, by: "corruption.at-random"),
    .init(
      .f2, "calls corruption an input/output error", .callsCorruptionIO, by: "corruption.at-random",
      "corruption.emptied-file"
    ),
    .init(.f2, "removes what is corrupted", .removesWhatIsCorrupted, by: "corruption.at-random"),
    .init(
      .f2, "moves what is corrupted aside, and is empty then", .movesWhatIsCorruptedAside,
      by: "corruption.replaced-file"),
    .init(
      .f2, "drops entries with long keys when their file is corrupted", .dropsLongKeysOnCorruption,
      by: "corruption.emptied-file"),
    .init(
      .f2, "starts empty without a small file", .emptiesWithoutItsMarker, by: "corruption.removed-file"),
    .init(
      .f1, "writes over what is there", .writesInPlace, by: "faults.full-disk-at-every-step",
      "faults.file-size-limit"),
    .init(
      .f1, "takes long keys for written when the disk is full", .ignoresErrorsOfLongKeys,
      by: "faults.full-disk-at-every-step"),
    .init(
      .f4, "takes long keys for written when it is refused", .ignoresErrorsOfLongKeys,
      by: "refused.read-only-directory"),
    .init(.f1, "writes batches in parts", .writesBatchesInParts, by: "faults.full-disk-at-every-step"),
    .init(
      .f1, "writes entries of others one by one", .importsInParts, by: "faults.full-disk-at-every-step"),
    .init(
      .f1, "touches updatedAt before the disk is full", .touchesTimesFirst,
      by: "faults.full-disk-at-every-step"),
    .init(
      .f4, "touches updatedAt before it is refused", .touchesTimesFirst, by: "refused.read-only-directory"),
    .init(.f1, "stays full", .staysFull, by: "faults.full-disk-at-every-step", "faults.file-size-limit"),
    .init(.f1, "forgets everything when full", .forgetsWhenFull, by: "faults.full-disk-at-every-step"),
    .init(
      .f1, "calls a full disk closed", .callsFullClosed, by: "faults.full-disk-at-every-step",
      "faults.file-size-limit"),
    .init(
      .f1, "calls a full disk an input/output error when it is opened", .cannotOpenWhenFull,
      by: "faults.full-disk-at-every-step"),
    .init(
      .o4, "keeps descriptors when opening fails", .leaksDescriptors,
      by: "dropping.after-many-failed-openings"),
    .init(
      .o4, "leaves a file when opening fails", .leavesFilesWhenNotOpened,
      by: "dropping.after-many-failed-openings"),
    .init(.o2, "is empty without descriptors", .emptyWithoutDescriptors, by: "opening.without-descriptors"),
    .init(
      .r4, "finds nothing without descriptors", .nilWithoutDescriptors, by: "faults.no-descriptors-while-open"
    ),
    .init(
      .r4, "says that nothing exists without descriptors", .existsNotWithoutDescriptors,
      by: "faults.no-descriptors-while-open"),
    .init(.r4, "traps without descriptors", .trapsWithoutDescriptors, by: "faults.no-descriptors-while-open"),
    .init(
      .o2, "takes a lack of descriptors for corruption", .callsDescriptorsCorrupted,
      by: "opening.without-descriptors"),
    .init(
      .o2, "does not say which file", .concealsPath, by: "opening.without-permission",
      "opening.without-descriptors"),
    .init(.o2, "does not say why", .concealsCause, by: "opening.without-permission"),
    .init(.o2, "is empty without permission", .emptyWithoutPermission, by: "opening.without-permission"),
    .init(
      .f4, "forgets everything when it is refused", .forgetsWhenRefused, by: "refused.read-only-directory"),
    .init(
      .f1, "shows what a transaction has written that met a full disk", .mergesTransactionsFirst,
      by: "faults.full-disk-at-every-step"),
    .init(
      .f4, "shows what a transaction has written that was refused", .mergesTransactionsFirst,
      by: "refused.read-only-directory"),
    .init(
      .o5, "makes files for all, and takes that back", .makesFilesForAll, by: "privacy.at-every-step"),
    .init(
      .o5, "makes directories for all, and takes that back", .makesDirectoriesForAll,
      by: "privacy.at-every-step"),
    .init(.w2, "lets updatedAt follow the clock", .updatesBackwards, by: "clock.set-back"),
    .init(
      .w2, "lets updatedAt follow the clock in transactions", .updatesBackwardsInTransactions,
      by: "clock.set-back"),
    .init(.w1, "waits until the clock has caught up", .waitsForTheClock, by: "clock.set-back"),
    .init(.w2, "remembers times until it is closed", .remembersTimesUntilClosed, by: "clock.set-back"),
    .init(.r6, "lists entries by their time", .listsByTime, by: "clock.set-back-and-order"),
  ]
}

extension ConformanceSuite {
  /// A suite with a worker for an engine that may have such a fault.
  static func environmentFault(
    _ name: String, _ fault: EnvironmentFaultEngine.Fault? = nil, stallTimeout: Duration = .seconds(120)
  ) -> ConformanceSuite {
    ConformanceSuite(
      name, capabilities: EnvironmentFaultEngine.promises(with: fault),
      stallTimeout: fault == .hangsOnCorruption
        ? .seconds(6) : fault == .waitsForTheClock ? .seconds(24) : stallTimeout,
      worker: ConformanceWorker(
        product: "FaultyEngineWorker", arguments: ["environmentFault"] + (fault.map { [$0.rawValue] } ?? []))
    ) { try EnvironmentFaultEngine(directory: $0, fault: fault) }
  }

  /// The checks of corruption, resource exhaustion, permissions and clock rollback.
  fileprivate var environmentFaultChecks: [ConformanceCheck] {
    let others: Set = [
      "faults.full-disk-at-every-step", "faults.file-size-limit", "faults.no-descriptors-while-open",
      "opening.without-permission", "opening.without-descriptors", "dropping.after-many-failed-openings",
      "refused.read-only-directory", "privacy.at-every-step",
    ]
    return checks.filter {
      $0.id.hasPrefix("corruption.") || $0.id.hasPrefix("clock.set-back") || others.contains($0.id)
    }
  }
}

@Suite("Engines under corruption, exhausted resources and clock rollback")
struct EnvironmentFaultTests {
  @Test(
    "Each faulty engine fails the checks that are named for it", arguments: EnvironmentFaultCase.all.spread)
  func failsForItsRule(_ engineCase: EnvironmentFaultCase) async throws {
    let suite = ConformanceSuite.environmentFault(engineCase.name, engineCase.fault)
    let checks = suite.environmentFaultChecks.filter { engineCase.checks.contains($0.id) }
    #expect(checks.count == engineCase.checks.count)
    for check in checks {
      var outcome = ConformanceOutcome.passed
      // If a check has to list files at the right moment, several attempts may be necessary on a busy machine.
      for _ in 0..<10 where outcome == .passed { outcome = await check.outcome() }
      switch outcome {
      case .passed: Issue.record("\(check.id) did not fail it")
      case .failed(let failure): #expect(failure.rule == engineCase.rule, "\(failure)")
      // A fake clock, small file systems and strace are not available everywhere.
      case .skipped(let reason): #expect(!reason.isEmpty)
      case .couldNotRun(let reason): Issue.record("\(check.id) could not run: \(reason)")
      }
    }
  }

  @Test("Every check of these faults has an engine that fails it")
  func isComplete() {
    let failing = EnvironmentFaultCase.all.reduce(into: Set()) { $0.formUnion($1.checks) }
    #expect(
      Set(ConformanceSuite.environmentFault("").environmentFaultChecks.map(\.id)).subtracting(failing) == [])
  }

  @Test(
    "A correct engine passes",
    arguments: ConformanceSuite.environmentFault("Environment").environmentFaultChecks)
  func passes(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test(
    "A correct engine with a second file passes",
    arguments: [EnvironmentFaultEngine.Fault.hasLockFile, .hasPreallocatedLog])
  func passesWithOtherFiles(_ file: EnvironmentFaultEngine.Fault) async {
    let suite = ConformanceSuite.environmentFault(file.rawValue, file)
    await suite.environmentFaultChecks.filter { $0.id.hasPrefix("corruption.") }.runAll()
  }

  @Test("A correct engine whose calls wait for timers passes, even with a clock that is set back")
  func passesWithTimers() async throws {
    let suite = ConformanceSuite.environmentFault("Timers", .waitsWithTimers)
    for id in ["clock.set-back", "clock.set-back-and-order"] {
      let check = try #require(suite.checks.first { $0.id == id })
      var outcome = ConformanceOutcome.passed
      // With faketime, a process may hang on a busy machine.
      for _ in 0..<4 {
        outcome = await check.outcome()
        guard case .skipped(let reason) = outcome, reason.contains("the fake clock") else { break }
      }
      switch outcome {
      case .passed: break
      case .skipped(let reason): #expect(!reason.contains("the fake clock"), "\(reason)")
      case .failed(let failure): Issue.record("\(failure)")
      case .couldNotRun(let reason): Issue.record("\(reason)")
      }
    }
  }
}
