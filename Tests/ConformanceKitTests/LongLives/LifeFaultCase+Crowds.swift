import ConformanceKit
import FaultyEngineWorker
import StockroomCore

extension LifeFaultCase {
  static let ofCrowds: [LifeFaultCase] = [
    .init(
      [.c4, .c1], memory: "a pool of 64 loses the places of cancelled calls",
      by: "crowd.a-thousand-cancelled-calls",
      stallTimeout: .seconds(5)
    ) { LosesPlaces(base: $0, count: 64) },
    .init(
      [.c4], memory: "writes of a moment are cancelled with the first", by: "crowd.a-thousand-cancelled-calls"
    ) { WritesForOthers(base: $0) },
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
      [.c1], memory: "lists join one that began before a write", by: "crowd.reads-are-not-shared-with-writes"
    ) { JoinsEarlierLists(base: $0) },
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
    .init([.c1], memory: "reads in groups, which fail for all", by: "crowd.one-bad-among-many") {
      AsksInGroups(base: $0)
    },
    .init([.c1], memory: "removes in groups, which fail for all", by: "crowd.one-bad-among-many") {
      RemovesInGroups(base: $0)
    },
    .init([.c1], memory: "applies batches in groups, which fail for all", by: "crowd.one-bad-among-many") {
      AppliesInGroups(base: $0)
    },
    .init(
      [.c4], memory: "a cancelled write of a key cancels those that wait for it",
      by: "crowd.cancelled-beside-others"
    ) { CombinesWritesOfAKey(base: $0) },
    .init(
      [.c4], memory: "an error of its own says that a wait was cancelled",
      by: "crowd.a-thousand-cancelled-calls"
    ) { HasItsOwnCancellation(base: $0) },
    .init([.c1], memory: "loses one removal of two hundred beside others", by: "crowd.reads-own-writes") {
      LosesSomeRemovals(base: $0)
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
    .init([.w2], memory: "dates an entry by each of several first writes", by: "crowd.of-one-key") {
      DatesEachFirstWrite(base: $0)
    },
    .init([.c1], memory: "gives the answer to one question for a time to all", by: "crowd.of-one-method") {
      GivesOneTimeToAll(base: $0)
    },
    .init([.c1, .k3], memory: "clears its index of keys late", by: "crowd.of-one-key") {
      ClearsItsIndexLate(base: $0)
    },
    .init([.c1], memory: "sends a write again", by: "late.after-acknowledged-calls") {
      RepeatsWrites(base: $0)
    },
    .init([.c1], memory: "sends a removal of several keys again", by: "late.after-acknowledged-calls") {
      RepeatsRemovalsOfMany(base: $0)
    },
    .init(
      [.c1], memory: "sends a write again that has waited for a body", by: "late.behind-long-bodies",
      claiming: .transactions
    ) { RepeatsSlowWrites(base: $0) },
    .init([.c4], memory: "does an import that was cancelled with the next", by: "late.after-cancelled-calls")
    {
      KeepsCancelledImports(base: $0)
    },
    .init([.c4], memory: "writes a batch that it has refused with the next", by: "late.after-cancelled-calls")
    {
      KeepsRefusedBatches(base: $0)
    },
    .init([.c4], memory: "works after it has thrown", by: "late.after-cancelled-calls") {
      WorksAfterThrowing(base: $0)
    },
    .init([.c1], memory: "loses one import of three hundred", by: "crowd.reads-own-writes") {
      LosesSomeImports(base: $0)
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
}
