import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

/// An engine with a faulty change feed, and the checks that detect it.
struct ChangeFaultCase: Sendable, CustomTestStringConvertible {
  let rule: ContractRule
  let name: String
  let fault: ChangeFaultEngine.Fault
  /// The checks that it fails.
  let checks: Set<String>
  let stallTimeout: Duration

  var testDescription: String { "\(rule): \(name)" }

  init(
    _ rule: ContractRule, _ name: String, _ fault: ChangeFaultEngine.Fault, by checks: String...,
    stallTimeout: Duration? = nil
  ) {
    (self.rule, self.name, self.fault, self.checks) = (rule, name, fault, Set(checks))
    // A missing element breaks rule X1, however long the wait is. For other rules the limit is longer, so that late
    // elements on a busy machine do not count as missing.
    self.stallTimeout = stallTimeout ?? (rule == .x1 ? .seconds(10) : .seconds(30))
  }

  static let all: [ChangeFaultCase] = [
    .init(.x1, "misses writes", .missesWrites, by: "changes.cover-write"),
    .init(.x1, "misses writes of the value that is there", .missesOverwrites, by: "changes.cover-overwrite"),
    .init(.x1, "misses batches", .missesBatches, by: "changes.cover-write-many"),
    .init(.x1, "misses removals", .missesRemovals, by: "changes.cover-remove"),
    .init(.x1, "misses batches of removals", .missesBatchesOfRemovals, by: "changes.cover-remove-many"),
    .init(.x1, "misses removeAllData()", .missesRemovalsOfAll, by: "changes.cover-remove-all"),
    .init(.x1, "misses apply(_:)", .missesApplies, by: "changes.cover-apply"),
    .init(.x1, "misses entries of others", .missesImports, by: "changes.cover-write-entries"),
    .init(
      .x1, "misses batches of the values that are there", .missesRewrittenBatches,
      by: "changes.cover-overwrite-many"),
    .init(
      .x1, "misses what has an origin", .missesChangesOfOrigins, by: "changes.cover-write-with-origin"),
    .init(
      .x1, "takes all origins for one", .mixesOrigins, by: "changes.cover-write-with-origin",
      stallTimeout: .seconds(6)),
    .init(
      .x1, "takes a removal and a write for nothing", .cancelsOutReplacements, by: "changes.cover-replace"),
    .init(
      .x1, "takes a write and a removal for nothing", .cancelsOutRemovals,
      by: "changes.cover-write-and-remove"),
    .init(.x1, "misses transactions", .missesTransactions, by: "changes.cover-transaction"),
    .init(
      .x1, "names the keys of a batch that removes all", .missesRemoveAllInBatches,
      by: "changes.cover-apply-remove-all"),
    .init(
      .x1, "names the keys of a transaction that removes all", .missesRemoveAllInTransactions,
      by: "changes.cover-transaction-remove-all"),
    .init(
      .x1, "misses batches of apply(_:) that only remove", .missesRemovalsOfApplies,
      by: "changes.cover-apply-removals"),
    .init(
      .x1, "misses transactions that only remove", .missesRemovalsOfTransactions,
      by: "changes.cover-transaction-removals"),
    .init(
      .x1, "misses transactions that only remove everything", .missesEmptyingTransactions,
      by: "changes.cover-transaction-of-remove-all"),
    .init(.x1, "notifies only the first subscriber", .notifiesOnlyTheFirst, by: "changes.cover-write"),
    .init(.x1, "misses old entries of others", .missesOldEntries, by: "changes.cover-write-entries"),
    .init(
      .x1, "misses entries of others in transactions", .missesImportsOfTransactions,
      by: "changes.cover-transaction-write-entry"),
    .init(
      .x1, "numbers what transactions change by their beginning", .numbersTransactionsEarly,
      by: "changes.behind-a-body"),
    .init(
      .x1, "announces the first run of a body", .announcesTheFirstRun, by: "changes.behind-a-body"),
    .init(
      .x1, "has room for a hundred changes that are unread", .forgetsWhatIsOld,
      by: "changes.for-a-slow-subscriber"),
    .init(
      .x1, "drops what is unread when it is closed", .dropsWhatIsUnreadWhenClosed,
      by: "changes.end-with-close"),
    .init(
      .x1, "follows nobody if it could not look for its log", .missesChangesWithoutLog, by: "faults.feeds",
      stallTimeout: .seconds(6)),
    .init(
      .x1, "looks no more once it could not read", .stopsLookingAfterErrors, by: "faults.feeds",
      stallTimeout: .seconds(6)),
    .init(
      .x1, "follows nobody if there were no descriptors left", .missesChangesWithoutDescriptors,
      by: "faults.no-descriptors-while-open"),
    .init(
      .x1, "asks for what is newer than all that it has told of", .asksForTheNewest,
      by: "changes.cover-write-entries"),
    .init(
      .x1, "announces nothing of a call that is cancelled meanwhile", .missesCancelledCalls,
      by: "changes.after-failing-calls"),
    .init(
      .x1, "announces nothing of a batch that is cancelled meanwhile", .missesCancelledBatches,
      by: "changes.after-failing-calls"),
    .init(
      .x1, "notifies a subscriber no more that had 300 changes unread", .stopsAfterOverflows,
      by: "changes.for-a-slow-subscriber"),
    .init(
      .x1, "waits for a pause before it reports anything", .waitsForAPause, by: "changes.of-many-tasks",
      stallTimeout: .seconds(4)),
    .init(
      .x1, "keeps keys alone when it merges what is unread", .mergesRemovalsAway,
      by: "changes.for-a-slow-subscriber", stallTimeout: .seconds(4)),
    .init(.x1, "connects eight engines", .followsFewEngines, by: "changes.of-many-engines"),
    .init(.x1, "notifies 64 subscribers", .notifiesTheFirst64, by: "changes.for-many-subscribers"),
    .init(
      .x1, "has no room for the keys of a large transaction", .missesLargeTransactions,
      by: "changes.of-a-large-batch"),
    .init(
      .x1, "misses a transaction after one that threw", .missesTheNextAfterErrors,
      by: "changes.after-failing-calls"),
    .init(
      .x1, "misses a transaction that has refused a write", .missesTransactionsWithRefusals,
      by: "changes.after-failing-calls", stallTimeout: .seconds(6)),
    .init(
      .x1, "follows nobody once all engines on the place were reopened", .followsNobodyWhenReopened,
      by: "changes.of-another-engine", stallTimeout: .seconds(6)),
    .init(
      .x1, "notifies those who subscribed before the body", .knowsSubscribersOfBodiesEarly,
      by: "changes.behind-a-body", stallTimeout: .seconds(6)),
    .init(
      .x1, "misses transactions that write what is there", .missesRewritesOfTransactions,
      by: "changes.cover-transaction", stallTimeout: .seconds(6)),
    .init(.x1, "has no room for long keys", .missesLongKeys, by: "changes.of-any-key"),
    .init(
      .x1, "announces nothing of names that it uses itself", .hidesItsOwnNames, by: "changes.of-any-key",
      stallTimeout: .seconds(6)),
    .init(.x1, "names keys in lower case", .namesKeysWithoutCase, by: "changes.of-any-key"),
    .init(.x1, "leaves it to other calls to tell", .leavesItToOthers, by: "changes.of-many-tasks"),
    .init(
      .x1, "notifies those who subscribed before the call", .knowsSubscribersEarly,
      by: "changes.while-subscribing"),
    .init(.x1, "names the first keys of a batch", .announcesAFewKeys, by: "changes.of-a-large-batch"),
    .init(.x1, "announces nothing after an error", .stopsAfterErrors, by: "changes.after-failing-calls"),
    .init(
      .x1, "gives up after many changes", .givesUpOnSlowSubscribers, by: "changes.for-a-slow-subscriber"),
    .init(
      .x1, "announces its own changes only", .followsOnlyItself, by: "changes.of-another-engine",
      "changes.of-two-engines", "processes.changes"),
    .init(
      .x1, "receives the first hundred keys of others", .receivesAHundredKeys,
      by: "changes.of-another-engine", "processes.changes-of-any-key"),
    .init(
      .x1, "watches a file that others have replaced", .staysOnRemovedFiles,
      by: "changes.of-another-engine", "processes.changes", stallTimeout: .seconds(6)),
    .init(.x1, "announces its own process only", .followsOnlyItsProcess, by: "processes.changes"),
    .init(
      .x1, "knows places by the spelling of their paths", .followsOnlyItsProcess,
      by: "opening.twice-by-any-spelling"),
    .init(
      .x1, "follows no other once that has begun a new log", .losesItsPlaceInNewLogs,
      by: "processes.changes-at-the-same-time"),
    .init(
      .x1, "follows no other once it has written", .followsNoOtherAfterOwnWrites,
      by: "changes.of-two-engines",
      "processes.changes-at-the-same-time"),
    .init(
      .x1, "cannot pass on unusual keys", .missesUnusualKeysOfOthers, by: "processes.changes-of-any-key"),
    .init(
      .x1, "begins to listen somewhat late", .noticesSubscriptionsLate,
      by: "processes.changes-while-subscribing"),
    .init(
      .x2, "announces before it writes", .announcesBeforeItWrites, by: "changes.can-be-read",
      "changes.announce-the-latest"),
    .init(.x2, "announces entries of others early", .announcesImportsEarly, by: "changes.can-be-read"),
    .init(.x2, "announces removals early", .announcesRemovalsEarly, by: "changes.can-be-read"),
    .init(
      .x2, "announces large batches early", .announcesLargeBatchesEarly, by: "changes.can-be-read"),
    .init(.x2, "announces before its list of keys is up to date", .listsKeysLate, by: "changes.can-be-read"),
    .init(.x2, "announces transactions early", .announcesTransactionsEarly, by: "changes.can-be-read"),
    .init(
      .x2, "announces what it does not read yet", .announcesOthersEarly, by: "processes.changes-can-be-read"),
    .init(
      .x2, "notifies other engines on the place before it writes", .notifiesOtherEnginesEarly,
      by: "changes.can-be-read"),
    .init(.x3, "announces reads", .announcesReads, by: "changes.silence-of-reads"),
    .init(.x3, "announces subscriptions", .announcesSubscriptions, by: "changes.silence-of-subscriptions"),
    .init(
      .x3, "announces calls that were cancelled", .announcesCancelledCalls,
      by: "changes.silence-of-cancelled-calls"),
    .init(
      .x3, "announces bodies that removed everything and threw", .announcesThrownRemovalsOfAll,
      by: "changes.silence-of-transactions-that-throw"),
    .init(
      .x3, "notifies other engines of bodies that threw", .notifiesOthersOfThrownBodies,
      by: "changes.silence-of-a-second-engine"),
    .init(
      .x3, "announces openings by other processes", .announcesOpeningsOfOtherProcesses,
      by: "processes.changes-silence-of-openings"),
    .init(.x3, "announces verification", .announcesVerification, by: "changes.silence-of-verification"),
    .init(.x3, "announces empty batches", .announcesEmptyBatches, by: "changes.silence-of-empty-batches"),
    .init(
      .x3, "announces empty batches of others", .announcesEmptyImports, by: "changes.silence-of-empty-batches"
    ),
    .init(.x3, "announces what it refuses", .announcesRefusedWrites, by: "changes.silence-of-refused-writes"),
    .init(
      .x3, "announces transactions that write nothing", .announcesTransactionsThatRead,
      by: "changes.silence-of-transactions-that-read"),
    .init(
      .x3, "announces transactions that throw", .announcesTransactionsThatThrow,
      by: "changes.silence-of-transactions-that-throw"),
    .init(
      .x3, "announces after some seconds without a change", .announcesNowAndThen,
      by: "changes.silence-while-nothing-is-called"),
    .init(
      .x3, "takes all places for one", .announcesOtherPlaces, by: "changes.silence-of-other-places"),
    .init(.x3, "announces openings", .announcesOpenings, by: "changes.silence-of-a-second-engine"),
    .init(
      .x4, "keeps all keys for a slow subscriber", .buffersWithoutBound,
      by: "changes.slow-subscribers-are-bounded", stallTimeout: .seconds(240)),
    .init(
      .x4, "waits for slow subscribers", .waitsForSubscribers, by: "changes.slow-subscribers-are-bounded"),
    .init(
      .x4, "keeps a descriptor for each subscription", .leaksDescriptorsPerSubscription,
      by: "changes.subscribers-that-left-cost-nothing",
      "changes.subscribers-that-were-cancelled-cost-nothing",
      stallTimeout: .seconds(240)),
    .init(.x5, "goes on when it is closed", .goesOnWhenClosed, by: "changes.end-with-close"),
    .init(
      .x5, "has subscribers when it is closed", .subscribesWhenClosed, by: "changes.end-with-close",
      "changes.subscribed-at-close"),
    .init(
      .x5, "ends all streams with one engine", .endsAllWithOneEngine, by: "changes.outlive-other-engines"),
    .init(
      .x5, "ends all streams with one of them", .endsAllWithOneSubscriber,
      by: "changes.outlive-other-subscribers"),
    .init(
      .x5, "announces another process when that writes again", .announcesOthersOneLate,
      by: "killed.while-others-subscribe"),
  ]
}

extension ChangeFaultCase {
  /// The checks of change feeds for an engine that may have a fault, each at the lower of the levels quick and standard
  /// that has it.
  static func checks(
    _ name: String = "", _ fault: ChangeFaultEngine.Fault? = nil, stallTimeout: Duration = .seconds(240),
    releaseLimits: ReleaseLimits = ReleaseLimits()
  ) -> [ConformanceCheck] {
    func checks(_ budget: ConformanceBudget) -> [ConformanceCheck] {
      var suite = ConformanceSuite(
        name, capabilities: ChangeFaultEngine.promises, stallTimeout: stallTimeout, budget: budget,
        worker: ConformanceWorker(
          product: "FaultyEngineWorker", arguments: ["changeFault"] + (fault.map { [$0.rawValue] } ?? []))
      ) { try ChangeFaultEngine(directory: $0, fault: fault) }
      suite.releaseLimits = releaseLimits
      return suite.checks.filter { isOwn($0.id) }
    }
    let quick = checks(.quick)
    let names = Set(quick.map(\.id))
    return quick + checks(.standard).filter { !names.contains($0.id) }
  }

  /// Whether the check is about change feeds.
  static func isOwn(_ id: String) -> Bool {
    id.hasPrefix("changes.") || id.hasPrefix("processes.changes")
      || [
        "killed.while-others-subscribe", "opening.twice-by-any-spelling", "faults.no-descriptors-while-open",
        "faults.feeds",
      ].contains(id)
  }
}

@Suite("Engines with faulty change feeds")
struct ChangeFaultTests {
  /// Several engines at once, because they spend most of the time waiting for elements that never arrive, and the
  /// number of concurrent tests is limited.
  @Test(
    "Each faulty engine fails the checks that are named for it",
    arguments: ChangeFaultCase.all.spread.groups(of: 8))
  func failForTheirRules(_ cases: [ChangeFaultCase]) async {
    await withTaskGroup(of: Void.self) { group in
      for engineCase in cases { group.addTask { await expectFailure(of: engineCase) } }
    }
  }

  private func expectFailure(of engineCase: ChangeFaultCase) async {
    var releaseLimits = ReleaseLimits()
    // These engines free nothing, however long the wait is.
    releaseLimits.time = .seconds(1)
    let checks = ChangeFaultCase.checks(
      engineCase.name, engineCase.fault, stallTimeout: engineCase.stallTimeout,
      releaseLimits: releaseLimits)
    var missed = engineCase.checks
    // If tasks or processes have to overlap at the right moment, several attempts may be necessary.
    for _ in 0..<20 where !missed.isEmpty {
      for check in checks where missed.contains(check.id) {
        guard let failure = await check.outcome().failure else { continue }
        missed.remove(check.id)
        #expect(
          failure.rule == engineCase.rule || failure.rule == check.rule,
          "\(engineCase.testDescription): \(failure)")
      }
    }
    #expect(missed.isEmpty, "\(engineCase.testDescription)")
  }

  @Test("Every check of change feeds has an engine that fails it")
  func isComplete() {
    let failing = ChangeFaultCase.all.reduce(into: Set()) { $0.formUnion($1.checks) }
    #expect(Set(ChangeFaultCase.checks().map(\.id)) == failing)
    let faults = Set(ChangeFaultCase.all.map(\.fault)).union([
      .saysEverything, .mergesForAWhile, .skipsOneChange,
    ])
    #expect(faults == Set(ChangeFaultEngine.Fault.allCases))
  }

  @Test(
    "Correct engines pass, including those that merge elements or name no keys",
    arguments: [(0, nil), (0, ChangeFaultEngine.Fault.saysEverything), (1, .mergesForAWhile)])
  func passes(_ number: Int, _ behavior: ChangeFaultEngine.Fault?) async {
    let checks = ChangeFaultCase.checks("Log", behavior)
    await (behavior == nil ? checks : checks.half(of: number)).runAll()
  }

  @Test(
    "A correct engine passes if it once could not watch its place and reports that although nothing changed")
  func passesAfterMissedWatch() async {
    let checks = ChangeFaultCase.checks("Misses one change", .skipsOneChange)
    await checks.filter { $0.id.hasPrefix("changes.silence-") }.runAll()
  }
}
