import FaultyEngineWorker
import Foundation
import StockroomCore
import Testing

@testable import ConformanceKit

/// An engine that fails after very many changes, when the clock jumps, or with many tasks, and the checks that detect
/// it.
struct LifeFaultCase: Sendable, CustomTestStringConvertible {
  let name: String
  /// One of these rules is broken, depending on timing.
  let rules: Set<ContractRule>
  /// The checks that it fails, possibly after several attempts.
  let checks: Set<String>
  let suite: ConformanceSuite

  var testDescription: String { "\(rules.map(\.rawValue).sorted().joined(separator: ", ")): \(name)" }

  /// Describes an engine with a log, for one process. By default, at the level at which checks have no time limits.
  init(
    _ rules: Set<ContractRule>, _ name: String, _ fault: LifeFaultEngine.Fault, by checks: String...,
    at level: ConformanceBudget.Level = .exhaustive
  ) {
    (self.name, self.rules, self.checks) = (name, rules, Set(checks))
    var suite = ConformanceSuite.lifeFault(name, fault, level)
    // These engines free nothing, however long the wait is.
    suite.releaseLimits.time = .seconds(1)
    suite.releaseLimits.stages = 6
    self.suite = suite
  }

  /// Describes an engine in memory.
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
    // The waiting calls of these engines wait for as long as there are other calls, so a tenth of the usual limit
    // detects it.
    suite.longestWait = 40
    suite.isSpeedMeasured = false
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
      [.w1], "a compaction takes empty values for removals", .compactionDropsEmptyValues,
      by: "life.of-few-keys"),
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
    .init([.o4], "never compacts its log", .neverCompacts, by: "life.frees-disk-space", at: .standard),
    .init(
      [.o4], "never compacts its log once a call has thrown", .neverCompactsAfterErrors,
      by: "life.frees-disk-space", at: .standard),
    .init(
      [.o4], "keeps logs that were compacted", .keepsOldLogs, by: "life.frees-disk-space", at: .standard),
    .init([.w6], "reads logs that were compacted", .readsOldLogs, by: "life.of-few-keys-reopened"),
    .init([.r6], "counts entries in 13 bits", .wrapsSequences, by: "life.of-few-keys"),
    .init([.w1, .r2], "counts versions in 13 bits", .wrapsVersions, by: "life.of-few-keys"),
    .init(
      [.w1], "loses an entry when a page is split", .losesAtSplits, by: "life.of-few-keys"),
    .init([.l2], "counts some removals twice", .countsRemovalsTwice, by: "life.of-few-keys"),
    .init(
      [.w6], "forgets the last write when it is closed late", .forgetsTheTail, by: "life.of-few-keys-reopened"
    ),
    .init(
      [.o4], "leaves a file after each error", .leaksFilesPerError, by: "life.leaves-nothing-after-errors"),
    .init(
      [.o4], "keeps files of large values", .leaksFilesPerValue, by: "life.frees-disk-space", at: .standard),
    .init(
      [.o4], "keeps a descriptor after each cancelled call", .leaksDescriptorsPerCancellation,
      by: "life.leaves-nothing-after-cancelled-calls"),
    .init(
      [.o4], "keeps a descriptor after each read of everything", .leaksDescriptorsPerScan,
      by: "life.leaves-nothing-after-calls"),
    .init([.o4], "starts a thread for each call", .leaksThreads, by: "life.leaves-nothing-after-calls"),
    .init(
      [.o4], "keeps all versions in memory", .keepsVersionsInMemory, by: "life.frees-disk-space",
      at: .standard
    ),
    .init(
      [.w1], "a merge of tables of 4 MiB revives what was removed early", .mergesRevive,
      by: "life.frees-disk-space", at: .standard),
    .init(
      [.o4], "leaves a file after each removal of everything", .leaksFilesPerRemovalOfAll,
      by: "life.leaves-nothing-after-calls"),
    .init(
      [.o4], "leaves a file after each count", .leaksFilesPerCount, by: "life.leaves-nothing-after-calls",
      at: .standard),
    .init(
      [.o4], "leaves a temporary file after each change", .leavesTemporaryFiles,
      by: "life.leaves-nothing-after-calls", at: .standard),
    .init(
      [.o4], "leaves the lock of each key that it is asked for", .leavesLocksOfKeys,
      by: "life.leaves-nothing-after-calls", at: .standard),
    .init(
      [.o4], "keeps the results of scans", .keepsResultsOfScans, by: "life.keeps-no-absent-keys",
      at: .standard),
    .init(
      [.o4], "keeps what it has not found", .keepsAbsentKeys, by: "life.keeps-no-absent-keys", at: .standard),
    .init(
      [.o4], "leaves a file after each question with a key that is refused", .leaksFilesPerRefusedQuestion,
      by: "life.leaves-nothing-after-errors", at: .standard),
    .init(
      [.o4], "keeps the cache of each engine that was closed", .keepsCachesOfOpenings,
      by: "life.leaves-nothing-after-openings", at: .standard),
    .init(
      [.w6], "counts openings in a byte", .countsOpeningsInAByte, by: "life.leaves-nothing-after-openings",
      at: .standard),
    .init(
      [.o4], "keeps a descriptor after each opening", .leaksDescriptorsPerOpening,
      by: "life.leaves-nothing-after-openings", at: .standard),

    .init(
      [.w6], "reads 512 entries when it is opened", .readsTheFirstSegment, by: "life.many-entries",
      at: .quick),
    .init(
      [.w2], "reads the times of 512 entries when it is opened", .readsTheTimesOfTheFirstSegment,
      by: "life.many-entries", at: .quick),
    .init(
      [.w6], "reads its files in the order of their names when it is opened", .readsFilesByName,
      by: "life.many-entries", at: .quick),
    .init([.w1], memory: "evicts beyond 3,000 entries", by: "life.many-entries") {
      EvictsTheOldest(base: $0, count: 3_000)
    },
    .init([.w1], memory: "evicts beyond 6,000 entries", by: "life.many-entries") {
      EvictsTheOldest(base: $0, count: 6_000)
    },
    .init([.w1], memory: "evicts beyond 12 MiB", by: "life.many-bytes") {
      EvictsTheOldest(base: $0, bytes: 12 << 20)
    },
    .init([.w1], memory: "does not find some of 2,500 entries", by: "life.many-entries") {
      ForgetsWhatIsRead(base: $0)
    },
    .init([.k3], memory: "lists 900 keys", by: "life.many-entries", at: .quick) {
      AlteredEngine(base: $0, keys: { Array($0.prefix(900)) })
    },
    .init([.f2], memory: "has checksums of 900 entries", by: "life.many-entries", at: .quick) {
      HasChecksums(base: $0, of: 900)
    },
    .init([.w5], memory: "applies 900 operations", by: "life.many-entries", at: .quick) {
      AlteredEngine(base: $0, operations: { Array($0.prefix(900)) })
    },
    .init([.w1], memory: "loses an overwrite of 250", by: "life.of-few-keys") {
      LosesSomeOverwrites(base: $0)
    },
    .init([.r6], memory: "has another order after 300 removals", by: "life.of-few-keys") {
      OrdersAnewAfterRemovals(base: $0)
    },
    .init(
      [.w1], memory: "drops what is old when there have been 100 changes", by: "life.of-one-key", at: .quick
    ) {
      TrimsTheOld(base: $0)
    },
    .init(
      [.w1], memory: "loses the write with which 200 new keys are moved", by: "life.of-one-key", at: .quick
    ) {
      MovesSingleWrites(base: $0, count: 200)
    },
    .init([.w1], memory: "drops what nobody reads after 256 reads", by: "life.of-reads", at: .quick) {
      DropsTheUnread(base: $0)
    },
    .init(
      [.t1], memory: "numbers transactions with twelve bits", by: "life.of-transactions",
      claiming: .transactions
    ) { NumbersTransactions(base: $0) },
    .init([.k3], memory: "leaves a key out of one list in a hundred", by: "life.of-reads") {
      ShortensSomeLists(base: $0)
    },
    .init([.w1], memory: "numbers scans with twelve bits", by: "life.of-reads") {
      NumbersScans(base: $0)
    },
    .init([.w1], memory: "scans no further than 8,000 removed entries", by: "life.of-passing-keys") {
      StopsAtRemovedEntries(base: $0)
    },
    .init([.w2], memory: "dates what it moves beyond 1,000 entries", by: "life.many-entries", at: .quick) {
      DatesWhatItMoves(base: $0)
    },
    .init(
      [.w2], memory: "moves one time of each entry beyond 1,000 entries", by: "life.many-entries", at: .quick
    ) { MovesOneTime(base: $0) },
    .init([.w1], memory: "counts the versions of a key in twelve bits", by: "life.of-one-key") {
      CountsVersions(base: $0, upTo: 1 << 12)
    },
    .init(
      [.d2], memory: "counts removals of everything in a byte", by: "life.of-removals-of-everything"
    ) { CountsGenerations(base: $0) },
    .init([.k1], memory: "has no cursor left after 64 scans that it refused", by: "life.of-errors") {
      LeaksPerError(base: $0, .refusedScan)
    },
    .init(
      [.t3], memory: "has no connection left after 32 bodies that threw", by: "life.of-errors",
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
      at: .quick, claiming: .changeFeed, stallTimeout: .seconds(12)
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
    .init(
      [.w1], "removes no entries that are of the future", .removesNothingOfTheFuture, by: "clock.jumps"),
    .init(
      [.w1], "takes for removed what is older than the last removal of everything", .emptiesUpToATime,
      by: "clock.jumps"),
    .init([.w2], "has seconds of 32 bits with a sign", .signedSeconds, by: "clock.jumps-and-timestamps"),
    .init([.w2], "has seconds of 32 bits", .unsignedSeconds, by: "clock.jumps-and-timestamps"),
    .init([.w2], "stores local time", .localTime, by: "clock.jumps-and-timestamps"),
    .init(
      [.w2], "stores the local time of a time zone with a name", .localTimeByName,
      by: "clock.jumps-and-timestamps"),
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

  /// The checks of very many changes, of clock jumps and of many tasks.
  var checksOfLives: [ConformanceCheck] {
    checks.filter { check in
      check.id.hasPrefix("clock.jumps")
        || ["life.", "crowd.", "late.", "fairness."].contains { check.id.hasPrefix($0) }
    }
  }
}
