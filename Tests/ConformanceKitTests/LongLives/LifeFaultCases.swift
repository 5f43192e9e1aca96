import FaultyEngineWorker
import Foundation
import StockroomCore
import Testing

@testable import ConformanceKit

/// An engine that breaks in a long life, when the clock jumps, or in a crowd, and the checks that find it.
struct LifeFaultCase: Sendable, CustomTestStringConvertible {
  let name: String
  /// The rules of which one is broken, as it happens.
  let rules: Set<ContractRule>
  /// The checks that it fails every time.
  let checks: Set<String>
  let suite: ConformanceSuite

  var testDescription: String { "\(rules.map(\.rawValue).sorted().joined(separator: ", ")): \(name)" }

  /// An engine with a log, for one process. The level is one at which the time that a check takes does not end it.
  init(
    _ rules: Set<ContractRule>, _ name: String, _ fault: LifeFaultEngine.Fault, by checks: String...,
    at level: ConformanceBudget.Level = .exhaustive
  ) {
    (self.name, self.rules, self.checks) = (name, rules, Set(checks))
    suite = .lifeFault(name, fault, level)
  }

  /// An engine in memory.
  init(
    _ rules: Set<ContractRule>, memory name: String, by checks: String...,
    at level: ConformanceBudget.Level = .exhaustive, claiming more: EngineCapabilities = [],
    stallTimeout: Duration = .seconds(60), clockTolerance: Duration = .zero,
    makeEngine: @escaping @Sendable (ReferenceEngine) -> any StorageEngine
  ) {
    (self.name, self.rules, self.checks) = (name, rules, Set(checks))
    let capabilities = more.union([.atomicBatches, .snapshotReads, .orderedScans])
    var suite = ConformanceSuite(
      name, capabilities: capabilities, stallTimeout: stallTimeout, budget: ConformanceBudget(level),
      clockTolerance: clockTolerance
    ) { _ in makeEngine(try ReferenceEngine(claiming: capabilities)) }
    // Where a call of these engines waits for others, it waits for as long as there are any, so that a tenth of the usual number shows it.
    suite.longestWait = 40
    self.suite = suite
  }

  static let all = ofLongLives + ofTime + ofCrowds + ofSlowEngines

  static let ofLongLives: [LifeFaultCase] = [
    .init(
      [.w1, .w6], "a compaction drops the newest entry", .compactionDropsTheNewest, by: "life.of-few-keys",
      "life.of-few-keys-reopened"),
    .init(
      [.w1, .w6], "a compaction brings a removed entry back", .compactionRevives, by: "life.of-few-keys"),
    .init([.w2], "a compaction sets updatedAt", .compactionRedates, by: "life.of-few-keys"),
    .init([.r6], "a compaction orders entries by key", .compactionReorders, by: "life.of-few-keys"),
    .init(
      [.w1], "a compaction has no room for large values", .compactionDropsLargeValues, by: "life.of-few-keys"),
    .init(
      [.w6, .w4], "a compaction writes over the log", .compactsInPlace, by: "life.killed-late", at: .standard),
    .init(
      [.f2], "traps when what was compacted is corrupted", .compactionIsUnchecked, by: "life.corrupted-late",
      at: .standard),
    .init(
      [.f1], "a compaction ignores that the disk is full", .compactionIgnoresAFullDisk,
      by: "life.on-a-full-disk", at: .standard),
    .init(
      [.o5], "a compacted log can be read by all", .compactionIsReadableByAll, by: "privacy.of-files",
      at: .standard),
    .init(
      [.o5], "a compaction follows links", .compactionFollowsLinks, by: "planted.link",
      "planted.dangling-link",
      at: .standard),
    .init([.o4], "never compacts its log", .neverCompacts, by: "life.gives-room-back", at: .standard),
    .init(
      [.o4], "keeps logs that were compacted", .keepsOldLogs, by: "life.gives-room-back", at: .standard),
    .init([.w6], "reads logs that were compacted", .readsOldLogs, by: "life.of-few-keys-reopened"),
    .init([.r6], "counts entries in two bytes", .wrapsSequences, by: "life.of-few-keys"),
    .init(
      [.w1, .r2], "counts versions in two bytes", .wrapsVersions, by: "life.of-few-keys"),
    .init(
      [.w1], "loses an entry when a page is split", .losesAtSplits, by: "life.of-few-keys"),
    .init([.l2], "counts some removals twice", .countsRemovalsTwice, by: "life.of-few-keys"),
    .init(
      [.w6], "forgets the last write when it is closed late", .forgetsTheTail, by: "life.of-few-keys-reopened"
    ),
    .init(
      [.o4], "leaves a file after each error", .leaksFilesPerError, by: "life.leaves-nothing-after-errors"),
    .init(
      [.o4], "keeps files of large values", .leaksFilesPerValue, by: "life.gives-room-back", at: .standard),
    .init(
      [.o4], "keeps a descriptor after each cancelled call", .leaksDescriptorsPerCancellation,
      by: "life.leaves-nothing-after-cancelled-calls"),
    .init(
      [.o4], "keeps a descriptor after each read of everything", .leaksDescriptorsPerScan,
      by: "life.leaves-nothing-after-calls"),
    .init([.o4], "starts a thread for each call", .leaksThreads, by: "life.leaves-nothing-after-calls"),
    .init(
      [.o4], "keeps all versions in memory", .keepsVersionsInMemory, by: "life.gives-room-back", at: .standard
    ),
    .init(
      [.w1], "a merge of tables of 4 MiB revives what was removed early", .mergesRevive,
      by: "life.gives-room-back", at: .standard),
    .init(
      [.o4], "leaves a file after each removal of everything", .leaksFilesPerRemovalOfAll,
      by: "life.leaves-nothing-after-calls"),
    .init(
      [.o4], "keeps a descriptor after each opening", .leaksDescriptorsPerOpening,
      by: "life.leaves-nothing-after-openings", at: .standard),

    .init(
      [.w6], "reads 1,024 entries when it is opened", .readsTheFirstSegment, by: "life.many-entries",
      at: .quick),
    .init([.w1], memory: "evicts beyond 3,000 entries", by: "life.many-entries") {
      EvictsTheOldest(base: $0, count: 3_000)
    },
    .init([.w1], memory: "evicts beyond 30,000 entries", by: "life.many-entries") {
      EvictsTheOldest(base: $0, count: 30_000)
    },
    .init([.w1], memory: "evicts beyond 12 MiB", by: "life.many-bytes") {
      EvictsTheOldest(base: $0, bytes: 12 << 20)
    },
    .init([.w1], memory: "does not find some of 2,500 entries", by: "life.many-entries") {
      ForgetsWhatIsRead(base: $0)
    },
    .init([.k3], memory: "lists 1,500 keys", by: "life.many-entries", at: .quick) {
      AlteredEngine(base: $0, keys: { Array($0.prefix(1_500)) })
    },
    .init([.w5], memory: "applies 1,500 operations", by: "life.many-entries", at: .quick) {
      AlteredEngine(base: $0, operations: { Array($0.prefix(1_500)) })
    },
    .init([.w1], memory: "loses an overwrite of 250", by: "life.of-few-keys") {
      LosesSomeOverwrites(base: $0)
    },
    .init([.r6], memory: "has another order after 300 removals", by: "life.of-few-keys") {
      OrdersAnewAfterRemovals(base: $0)
    },
    .init(
      [.w1], memory: "drops what is old when there have been 1,000 changes", by: "life.of-one-key", at: .quick
    ) {
      TrimsTheOld(base: $0)
    },
    .init([.w1], memory: "drops what nobody reads after 65,536 reads", by: "life.of-reads") {
      DropsTheUnread(base: $0)
    },
    .init(
      [.t1], memory: "numbers transactions with twelve bits", by: "life.of-transactions",
      claiming: .transactions
    ) { NumbersTransactions(base: $0) },
    .init([.w2], memory: "dates what it moves beyond 8,192 entries", by: "life.many-entries") {
      DatesWhatItMoves(base: $0)
    },
    .init([.w1], memory: "counts the versions of a key in twelve bits", by: "life.of-one-key", at: .quick) {
      CountsVersions(base: $0, upTo: 1 << 12)
    },
    .init(
      [.d2], memory: "counts removals of everything in a byte", by: "life.of-removals-of-everything",
      at: .quick
    ) { CountsGenerations(base: $0) },
    .init(
      [.k1], memory: "has no cursor left after 64 scans that it refused", by: "life.of-errors", at: .quick
    ) {
      LeaksPerError(base: $0, .refusedScan)
    },
    .init(
      [.t3], memory: "has no connection left after 32 bodies that threw", by: "life.of-errors", at: .quick,
      claiming: .transactions
    ) { LeaksPerError(base: $0, .thrownBody) },
    .init(
      [.c1], memory: "has no connection after ten seconds without a call", by: "life.after-a-pause",
      at: .standard
    ) { LosesIdleConnections(base: $0) },
    .init(
      [.r6], memory: "compacts what is left alone for three seconds, by key", by: "life.after-a-pause",
      at: .quick
    ) { CompactsWhenIdle(base: $0) { $0.sorted { $0.key < $1.key } } },
    .init(
      [.w2], memory: "compacts what is left alone for three seconds, with one time", by: "life.after-a-pause",
      at: .quick
    ) {
      CompactsWhenIdle(base: $0) { entries in
        entries.map { entry in
          var entry = entry
          entry.createdAt = entry.updatedAt
          return entry
        }
      }
    },
    .init(
      [.x1], memory: "ends a subscription of which nothing has come for four seconds",
      by: "life.after-a-pause",
      at: .quick, claiming: .changeFeed
    ) { DropsIdleSubscriptions(base: $0) },
  ]

  static let ofTime: [LifeFaultCase] = [
    .init([.w1], "an entry expires after minutes", .expiresAfterMinutes, by: "clock.jumps"),
    .init([.w1], "an entry expires after a day", .expiresAfterADay, by: "clock.jumps"),
    .init([.w1], "an entry expires after 30 days", .expiresAfter30Days, by: "clock.jumps"),
    .init([.w1], "an entry expires while the engine is closed", .expiresBetweenOpenings, by: "clock.jumps"),
    .init([.w1], "entries of the future are dropped", .dropsTheFuture, by: "clock.jumps"),
    .init([.w1], "refuses writes that are older than others", .refusesOlder, by: "clock.jumps"),
    .init([.w1], "ignores writes that are older than others", .ignoresOlder, by: "clock.jumps"),
    .init([.w1], "cannot be opened when entries are of the future", .refusesTheFuture, by: "clock.jumps"),
    .init([.w2], "has seconds of 32 bits with a sign", .signedSeconds, by: "clock.jumps-and-timestamps"),
    .init([.w2], "has seconds of 32 bits", .unsignedSeconds, by: "clock.jumps-and-timestamps"),
    .init([.w2], "stores local time", .localTime, by: "clock.jumps-and-timestamps"),
    .init(
      [.w2], "stores local time, of which an hour comes twice", .localTimeTwice,
      by: "clock.jumps-and-timestamps"),
    .init([.w2], "stores whole seconds", .secondsAfterReopening, by: "clock.jumps-and-timestamps"),
    .init(
      [.w2], "stores times as small floating-point numbers", .floatTimes, by: "clock.jumps-and-timestamps"),
    .init([.w2], "reads the clock when it is opened", .clockOfTheOpening, by: "clock.jumps-and-timestamps"),
    .init([.w2], "never goes back when the clock does", .neverGoesBack, by: "clock.jumps-and-timestamps"),
    .init([.w2], "stores the year of the week", .weekYears, by: "clock.jumps-and-timestamps"),
    .init([.w1], "counts from 2001 without a sign", .unsignedSince2001, by: "clock.jumps"),
    .init([.r6], "orders entries by time", .ordersByTime, by: "clock.jumps-and-order"),
  ]

  static let ofCrowds: [LifeFaultCase] = [
    .init(
      [.c4, .c1], memory: "a pool of 64 loses the places of cancelled calls",
      by: "crowd.a-thousand-cancelled-calls",
      stallTimeout: .seconds(5)
    ) { LosesPlaces(base: $0, count: 64) },
    .init(
      [.c4], memory: "a pool of 4 loses the places of cancelled calls", by: "crowd.cancelled-beside-others",
      stallTimeout: .seconds(5)
    ) { LosesPlaces(base: $0, count: 4) },
    .init(
      [.c1], memory: "a call needs two of 128 places", by: "crowd.of-300-tasks", stallTimeout: .seconds(5)
    ) {
      TakesTwoPlaces(base: $0)
    },
    .init([.c1], memory: "refuses the 201st of many calls", by: "crowd.of-300-tasks") {
      RefusesBeyond(base: $0, limit: 200)
    },
    .init(
      [.c1], memory: "has places for 60 transactions", by: "crowd.of-300-tasks", claiming: .transactions
    ) { HasFewPlaces(base: $0, for: .transactions, limit: 60) },
    .init([.c1], memory: "has places for 126 scans", by: "crowd.of-300-tasks") {
      HasFewPlaces(base: $0, for: .scans, limit: 126)
    },
    .init([.c1], memory: "throttles a hot key", by: "crowd.of-300-tasks") { ThrottlesHotKeys(base: $0) },
    .init([.c4], memory: "shared reads are cancelled with the first", by: "crowd.cancelled-beside-others") {
      SharesReads(base: $0, isStale: false)
    },
    .init(
      [.c4], memory: "shared reads of everything are cancelled with the first",
      by: "crowd.cancelled-beside-others"
    ) { SharesReadsOfEverything(base: $0) },
    .init(
      [.c1], memory: "reads join one that began before a write", by: "crowd.reads-are-not-shared-with-writes"
    ) {
      SharesReads(base: $0, isStale: true)
    },
    .init([.c1], memory: "has places for 140 scans", by: "crowd.of-one-method") {
      HasFewPlaces(base: $0, for: .scans, limit: 140)
    },
    .init([.c1], memory: "loses one of a hundred writes", by: "crowd.of-one-method") {
      LosesSomeWrites(base: $0, oneIn: 100)
    },
    .init([.c1], memory: "refuses what is more than 16 MiB at one time", by: "crowd.of-large-values") {
      RefusesMuchAtOnce(base: $0)
    },
    .init(
      [.c1], memory: "removals join one that began before a write",
      by: "crowd.removals-are-not-shared-with-writes"
    ) { JoinsEarlierRemovals(base: $0) },
    .init(
      [.c1], memory: "reads of many keys join one that began before a change",
      by: "crowd.reads-are-not-shared-with-writes"
    ) { JoinsEarlierReads(base: $0, .readMany) },
    .init(
      [.c1], memory: "scans join one that began before a change", by: "crowd.reads-are-not-shared-with-writes"
    ) { JoinsEarlierReads(base: $0, .scan) },
    .init(
      [.c1], memory: "questions for a time join one that was put before a change",
      by: "crowd.reads-are-not-shared-with-writes"
    ) { JoinsEarlierReads(base: $0, .updatedAt) },
    .init(
      [.c4, .c1], memory: "a cancelled import or transaction keeps its turn",
      by: "crowd.a-thousand-cancelled-calls", claiming: .transactions, stallTimeout: .seconds(5)
    ) { LosesTurns(base: $0) },
    .init([.c1], memory: "a group commit fails for all", by: "crowd.one-bad-among-many") {
      CommitsInGroups(base: $0, .failsAll)
    },
    .init([.c1], memory: "a group commit acknowledges what failed", by: "crowd.one-bad-among-many") {
      CommitsInGroups(base: $0, .acknowledgesAll)
    },
    .init([.c4], memory: "a group commit is cancelled with the first", by: "crowd.cancelled-beside-others") {
      CommitsInGroups(base: $0, .cancelsAll)
    },
    .init([.c4], memory: "a cancelled call cancels the next one", by: "crowd.cancelled-beside-others") {
      KeepsCancellation(base: $0, .forTheNext)
    },
    .init([.c4], memory: "a cancelled call breaks the connection", by: "crowd.a-thousand-cancelled-calls") {
      KeepsCancellation(base: $0, .forGood)
    },
    .init(
      [.c1], memory: "writers starve", by: "fairness.writers-among-readers", "fairness.writers-among-scans"
    ) { PrefersSome(base: $0, .readers) },
    .init(
      [.c1], memory: "writers of any kind starve", by: "fairness.imports-among-readers",
      "fairness.transactions-among-readers", "fairness.removals-of-everything-among-readers",
      claiming: .transactions
    ) { PrefersSome(base: $0, .readers) },
    .init(
      [.c1], memory: "readers starve", by: "fairness.readers-among-writers",
      "fairness.reads-of-everything-among-writers"
    ) { PrefersSome(base: $0, .writers) },
    .init([.c1], memory: "serves the last first", by: "fairness.among-readers", "fairness.among-writers") {
      ServesTheLastFirst(base: $0)
    },
    .init(
      [.c1], memory: "batches wait until nobody writes", by: "fairness.batches-among-writers",
      "fairness.reads-of-everything-among-writers"
    ) { WaitsForQuiet(base: $0) },
    .init([.c1, .l2], memory: "looks, then counts", by: "crowd.of-one-key") { CountsAfterALook(base: $0) },
    .init([.c1, .w2], memory: "looks, then dates", by: "crowd.of-one-key") { DatesAfterALook(base: $0) },
    .init([.w2], memory: "looks for a date, then writes it", by: "crowd.of-one-key") {
      KeepsOldDates(base: $0)
    },
    .init([.c1, .k3], memory: "clears its index of keys late", by: "crowd.of-one-key") {
      ClearsItsIndexLate(base: $0)
    },
    .init([.c1], memory: "sends a write again", by: "late.after-acknowledged-calls") {
      RepeatsWrites(base: $0)
    },
    .init(
      [.c1], memory: "sends a write again that has waited for a body", by: "late.behind-long-bodies",
      claiming: .transactions
    ) { RepeatsSlowWrites(base: $0) },
    .init([.c4], memory: "does an import that was cancelled with the next", by: "late.after-cancelled-calls")
    {
      KeepsCancelledImports(base: $0)
    },
    .init([.c4], memory: "works after it has thrown", by: "late.after-cancelled-calls") {
      WorksAfterThrowing(base: $0)
    },
    .init([.c1], memory: "loses one write of a thousand", by: "crowd.reads-own-writes") {
      LosesSomeWrites(base: $0, oneIn: 1_000)
    },
    .init(
      [.o3], memory: "close() wakes none of those that wait", by: "crowd.when-it-is-closed",
      stallTimeout: .seconds(5)
    ) { ForgetsWhoWaits(base: $0, .neverWakes) },
    .init(
      [.o3], memory: "transactions under way at close() use what is gone", by: "crowd.when-it-is-closed",
      claiming: .transactions
    ) { ForgetsWhoWaits(base: $0, .usesWhatIsGone) },
    .init([.o3], memory: "verifies files that are closed meanwhile", by: "crowd.when-it-is-closed") {
      LosesItsFilesWhenClosed(base: $0)
    },
    .init([.o3], memory: "reads under way at close() find nothing", by: "crowd.when-it-is-closed") {
      ForgetsWhoWaits(base: $0, .returnsNothing)
    },
  ]

  static let ofSlowEngines: [LifeFaultCase] = [
    .init(
      [.w2], memory: "a server's clock is ahead by more than the tolerance", by: "timestamps.of-first-write",
      clockTolerance: .seconds(2)
    ) { HasAServersClock(base: $0, ahead: 5) },
    .init(
      [.c1], memory: "waits in each call, and serves the last first", by: "fairness.among-writers"
    ) { TakesItsTimeAndTheLast(base: $0) },
  ]
}

extension ConformanceSuite {
  /// The checks for an engine with a log.
  static func lifeFault(
    _ name: String, _ fault: LifeFaultEngine.Fault?, _ level: ConformanceBudget.Level = .quick
  ) -> ConformanceSuite {
    ConformanceSuite(
      name, capabilities: LifeFaultEngine.promises, budget: ConformanceBudget(level),
      worker: ConformanceWorker(
        product: "FaultyEngineWorker", arguments: ["lifeFault"] + (fault.map { [$0.rawValue] } ?? []))
    ) { try LifeFaultEngine(directory: $0, fault: fault) }
  }

  /// The checks of long lives, of clocks that jump and of crowds.
  var checksOfLives: [ConformanceCheck] {
    checks.filter { check in
      check.id.hasPrefix("clock.jumps")
        || ["life.", "crowd.", "late.", "fairness."].contains { check.id.hasPrefix($0) }
    }
  }
}
