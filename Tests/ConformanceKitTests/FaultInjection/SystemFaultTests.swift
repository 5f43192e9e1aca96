import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

/// An engine that fails if a system call fails.
struct SystemFaultCase: Sendable, CustomTestStringConvertible {
  let rules: Set<ContractRule>
  let name: String
  let fault: SystemFaultEngine.Fault?
  let keepsLog: Bool
  let check: String

  var testDescription: String { "\(rules.map(\.rawValue).sorted().joined(separator: ", ")): \(name)" }

  init(
    _ rules: Set<ContractRule>, _ name: String, _ fault: SystemFaultEngine.Fault?, keepsLog: Bool = true,
    by check: String = "faults.system-calls"
  ) {
    (self.rules, self.name, self.fault, self.keepsLog, self.check) = (rules, name, fault, keepsLog, check)
  }

  static let all: [SystemFaultCase] = [
    .init([.w6, .f4], "takes what could not be written for written", .ignoresWriteErrors),
    .init([.w6, .f4], "takes long keys that could not be written for written", .ignoresErrorsOfLongKeys),
    .init([.w6, .f4], "takes an interrupted write for a whole one", .acknowledgesInterruptedWrites),
    .init([.w6, .f4], "takes half of a write for a whole one", .acknowledgesShortWrites),
    .init([.w6, .f4], "takes half of the rest of a write for the whole", .continuesShortWritesOnce),
    .init([.w6, .f4], "begins again behind half of a write", .repeatsShortWritesWhole),
    .init([.f4], "shows removals that threw", .appliesBeforeWriting),
    .init([.f4], "counts writes that threw", .countsRefusedWrites),
    .init([.f4, .w6], "leaves records in the log that threw", .leavesRefusedRecords),
    .init([.w4, .f4], "logs a batch entry by entry", .logsEntryByEntry),
    .init([.w4, .f4], "logs a transaction entry by entry", .logsTransactionsEntryByEntry),
    .init([.w6, .f4], "writes behind what it could not take back", .appendsBehindTornRecords),
    .init([.f4], "does later what threw", .repeatsRefusedWrites),
    .init([.f4, .w6], "makes room by forgetting what is there", .evictsWhenFull),
    .init([.f4, .w6], "empties its file before it writes", .truncatesBeforeWriting, keepsLog: false),
    .init([.w6], "takes a failed sync for a sync", .ignoresSyncErrors, by: "faults.failed-syncs"),
    .init(
      [.w6], "syncs again after a failed sync, and believes it", .repeatsSyncs, by: "faults.failed-syncs"),
    .init([.w6, .f4, .r4], "takes half of a read for the end of the log", .endsAtShortReads),
    .init([.f4, .r4], "returns the half of a value that it has read", .returnsShortValues),
    .init([.f4, .r4, .w6], "is empty when it cannot read", .emptyAfterReadErrors),
    .init(
      [.f4, .r4, .w6], "begins again when it cannot open its file", .emptyAfterOpenErrors,
      by: "faults.every-change"),
    .init([.f4, .r4, .w6], "is empty when it cannot map its file", .emptyAfterMapErrors),
    .init(
      [.f4, .r4, .w6], "begins again when it cannot look for its file", .emptyAfterAccessErrors,
      by: "faults.every-change"),
    .init([.r4], "returns nil for what it cannot read", .nilAfterReadErrors),
    .init([.r4], "forgets what it could not read", .dropsUnreadable),
    .init(
      [.f4], "forgets what it could not read, once it has thrown", .forgetsUnreadable, by: "faults.every-read"
    ),
    .init([.r4], "leaves out of all entries what it cannot read", .skipsUnreadable, by: "faults.every-read"),
    .init(
      [.r4], "leaves out of all entries what it cannot read twice", .skipsUnreadableAtSecondAttempt,
      by: "faults.every-read"),
    .init(
      [.r4], "leaves out of transactions what it cannot read", .skipsUnreadableInBodies,
      by: "faults.every-read"),
    .init(
      [.r4], "has no key when it cannot look for its file", .absentAfterAccessErrors, by: "faults.every-read"),
    .init(
      [.r4], "has no times when it cannot look for its file", .undatedAfterAccessErrors,
      by: "faults.every-read"),
    .init(
      [.r4], "counts nothing when it cannot look for its file", .uncountedAfterAccessErrors,
      by: "faults.every-read"),
    .init(
      [.w2], "takes an entry that it cannot read for a new one when it overwrites it", .redatesUnreadable,
      by: "faults.every-change"),
    .init(
      [.w2], "keeps the time of an overwrite that it has refused", .datesRefusedWrites,
      by: "faults.every-change"),
    .init(
      [.o4], "keeps a descriptor when a read fails", .leaksDescriptorsOfReads, by: "faults.every-read"),
    .init(
      [.f4, .w6], "takes removals of several keys for done that failed", .ignoresErrorsOfRemovals,
      by: "faults.every-change"),
    .init(
      [.w6, .f4, .r4], "rewrites its file when it is closed, and does not see what fails",
      .ignoresRewriteErrors,
      by: "faults.every-change"),
    .init(
      [.w6, .f4, .r4], "compacts its log, and does not see what fails", .compactsIgnoringErrors,
      by: "faults.compactions"),
    .init([.w4, .f4], "removes several keys one by one", .removesKeyByKey, by: "faults.every-change"),
    .init(
      [.w4, .f4], "writes entries of others one by one", .importsEntryByEntry, by: "faults.every-change"),
    .init([.f4, .r4, .w6], "is empty when it cannot read twice", .emptyAfterRepeatedReadErrors),
    .init([.f4, .w6], "puts a file away that it could not read", .setsAsideUnreadable),
    .init(
      [.w6, .f4, .r4], "removes the old file before it renames the new", .unlinksBeforeRenaming,
      keepsLog: false),
    .init([.w6, .f4, .r4], "takes a failed rename for done", .ignoresRenameErrors, keepsLog: false),
    .init([.w6, .f4], "takes a failed removal of its file for done", .ignoresUnlinkErrors),
    .init([.w6, .f4, .r4], "takes a failed truncation for done", .ignoresTruncateErrors),
    .init([.f4], "traps on an error", .trapsOnErrors),
    .init([.f4], "waits for ever after an interruption", .hangsWhenInterrupted),
    .init([.o4], "keeps a descriptor when opening fails", .leaksDescriptors),
    .init([.f4], "keeps its lock when opening fails", .leaksLocks, by: "faults.every-change"),
    .init([.f4], "throws errors of another type", .throwsForeignErrors),
    .init([.f4], "says that it has been closed", .callsErrorsClosed),
    .init([.f4, .w6], "refuses its place for ever after an error", .staysCorrupted),
    .init([.f4], "writes nothing any more after an error, though it is opened again", .staysReadOnly),
  ]

  /// Engines that handle failed calls correctly, in different ways.
  static let correct: [SystemFaultCase] = [
    .init([], "takes back what it could not write", nil),
    .init([], "syncs again after an interrupted sync", .repeatsInterruptedSyncs),
    .init([], "puts a new file in the place of the old one", nil, keepsLog: false),
    .init(
      [], "throws after an error until it is opened again, and finds then what it has written", .breaksAtOnce),
    .init([], "syncs a new log under another name, which it removes afterwards", .namesCompleteLogs),
  ]

  /// - Parameter seed: Determines which calls fail.
  func suite(of check: String, seed: UInt64 = 1) -> ConformanceSuite {
    var budget = ConformanceBudget()
    if TestRun.isExhaustive, check == "faults.failed-syncs" { budget = .exhaustive }
    budget.seed = seed
    return ConformanceSuite(
      name, capabilities: SystemFaultEngine.promises,
      stallTimeout: fault == .hangsWhenInterrupted ? .seconds(24) : .seconds(120),
      budget: budget,
      worker: ConformanceWorker(
        product: "FaultyEngineWorker",
        arguments: ["systemFault", keepsLog ? "log" : "copy"] + (fault.map { [$0.rawValue] } ?? []))
    ) { [keepsLog, fault] in try SystemFaultEngine(directory: $0, keepsLog: keepsLog, fault: fault) }
  }
}

/// Whether the kit supports intercepting system calls on this system. The checks are skipped if the kernel does not
/// allow it.
let canInterceptCalls: Bool = {
  #if os(Linux) && (arch(x86_64) || arch(arm64))
    true
  #else
    false
  #endif
}()

@Suite("Engines whose system calls fail", .enabled(if: canInterceptCalls))
struct SystemFaultTests {
  @Test("Each faulty engine fails the check that is named for it", arguments: SystemFaultCase.all.spread)
  func failsForItsRule(_ engineCase: SystemFaultCase) async throws {
    var outcome = ConformanceOutcome.passed
    // The seed determines which of the calls fail, and the engine's threads determine their order.
    for seed in UInt64(1)...20 where outcome == .passed {
      let checks = engineCase.suite(of: engineCase.check, seed: seed).checks
      outcome = try await #require(checks.first { $0.id == engineCase.check }).outcome()
    }
    outcome.expectFailure(of: engineCase.rules)
  }

  @Test("A correct engine passes", arguments: SystemFaultCase.correct)
  func passes(_ engineCase: SystemFaultCase) async throws {
    try await expectSuccess("faults.system-calls", of: engineCase)
    try await expectSuccess("faults.every-read", of: engineCase)
    try await expectSuccess("faults.every-change", of: engineCase)
  }

  @Test(
    "A correct engine passes although failed syncs lose the unsynced data",
    arguments: TestRun.isExhaustive ? SystemFaultCase.correct : Array(SystemFaultCase.correct.prefix(2)))
  func passesFailedSyncs(_ engineCase: SystemFaultCase) async throws {
    try await expectSuccess("faults.failed-syncs", of: engineCase)
  }

  @Test("A correct engine passes although system calls fail while it compacts its log")
  func passesCompactions() async throws {
    try await expectSuccess("faults.compactions", of: .init([], "compacts its log", .compacts))
  }

  /// Regression: the start of the process counted as part of its first step.
  @Test("An engine whose worker process takes long to start does not count as hanging")
  func startsSlowly() async throws {
    let program = ConformanceWorker(product: "FaultyEngineWorker").executable.systemPath
    let worker = ConformanceWorker(
      executable: URL(filePath: "/bin/sh"), arguments: ["-c", "sleep 14; exec '\(program)' systemFault log"])
    let suite = ConformanceSuite(
      "Starts slowly", capabilities: SystemFaultEngine.promises, stallTimeout: .seconds(24), budget: .quick,
      worker: worker
    ) { try SystemFaultEngine(directory: $0, keepsLog: true, fault: nil) }
    try await #require(suite.checks.first { $0.id == "faults.system-calls" }).outcome().expectPass()
  }

  private func expectSuccess(_ id: String, of engineCase: SystemFaultCase) async throws {
    let check = try #require(engineCase.suite(of: id).checks.first { $0.id == id })
    await check.outcome().expectPass()
  }
}

extension ConformanceOutcome {
  /// Expects a violation of one of the rules after a failed system call, unless the kernel does not allow interception.
  func expectFailure(of rules: Set<ContractRule>) {
    switch self {
    case .passed: Issue.record("no check failed it")
    case .failed(let failure):
      #expect(rules.contains(failure.rule), "\(failure)")
      // The failed call, and how it failed.
      #expect(
        failure.actual.contains(
          /(after|when) the \d+(st|nd|rd|th) \w+ (failed with E|transferred only half)/),
        "\(failure.actual)")
    case .skipped(let reason): #expect(reason.contains("kernel"), "\(reason)")
    case .couldNotRun(let reason): Issue.record("\(reason)")
    }
  }

  /// Expects the check to pass, unless the kernel does not allow interception.
  func expectPass() {
    switch self {
    case .passed: break
    case .skipped(let reason): #expect(reason.contains("kernel"), "\(reason)")
    case .failed(let failure): Issue.record("\(failure)")
    case .couldNotRun(let reason): Issue.record("\(reason)")
    }
  }
}
