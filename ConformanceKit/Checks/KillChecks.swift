#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Processes that are killed: rules W4, W6 and S3. Each check kills one process after another on the same files.

extension CheckDefinition {
  @CheckList static var killChecks: [CheckDefinition] {
    Check(
      .w6, "killed.while-writing-batches",
      "after a process that was writing batches is killed, acknowledged entries are there with their "
        + "timestamps and in order, the batch in progress is all or nothing, and there is nothing else",
      needs: .persistent,
      needsWorker: true
    ) { try await checkSteps($0, .batches) }
    Check(
      .w4, "killed.while-writing-large-batches",
      "after a process that was writing or removing thousands of entries in one call is killed, that call is "
        + "all or nothing, and acknowledged changes are there", needs: [.persistent, .atomicBatches],
      needsWorker: true
    ) { context in
      let count = context.byLevel(quick: 1_200, standard: 6_000, exhaustive: 30_000)
      try await checkSteps(
        context, .largeBatches(of: count), kills: max(3, context.budget.kills / 2), after: 2)
    }
    Check(
      .w6, "killed.while-importing",
      "after a process that was importing entries of another engine is killed, acknowledged entries are "
        + "there with their timestamps and in order, the batch in progress is all or nothing, and there is "
        + "nothing else",
      needs: .persistent,
      needsWorker: true
    ) { try await checkSteps($0, .imports, kills: max(2, $0.budget.kills / 2)) }
    Check(
      .w6, "killed.while-writing-one-by-one",
      "after a process that was writing and removing single entries is killed, acknowledged changes are "
        + "there with their timestamps and in order, the change in progress may be, and there is nothing else",
      needs: .persistent,
      needsWorker: true
    ) { try await checkSteps($0, .single) }
    Check(
      .w6, "killed.while-transactions-run",
      "after a process that was running transactions is killed, acknowledged changes are there with their "
        + "timestamps and in order, the transaction in progress is all or nothing, and there is nothing else",
      needs: [.persistent, .transactions], needsWorker: true
    ) { try await checkSteps($0, .transactions) }
    Check(
      .w6, "killed.while-opening",
      "after a process is killed while it opens a place whose previous process was killed, acknowledged "
        + "changes are there",
      needs: .persistent, needsWorker: true
    ) { try await checkOpening($0) }
    Check(
      .w6, "killed.while-several-tasks-write",
      "after a process with several writing tasks is killed, the acknowledged writes of each task are there",
      needs: .persistent, needsWorker: true
    ) { try await checkTasks($0) }
    Check(
      .s3, "killed.while-chains-run",
      "after a process is killed during a chain, a store has all old items or all new ones",
      needs: [.persistent, .atomicBatches], needsWorker: true
    ) { try await checkChains($0) }
  }
}

// MARK: - Steps

/// - Parameters:
///   - kills: How many processes are killed. Nil for the number in the budget.
///   - limit: The maximum number of steps before each process is killed.
private func checkSteps(
  _ context: CheckContext, _ kind: NumberedSteps.Kind, kills: Int? = nil, after limit: Int = 24
) async throws {
  var experiment = StepExperiment(context, kind)
  for _ in 0..<(kills ?? context.budget.kills) {
    context.noteProgress()
    try await context.withWorker { worker in
      try await experiment.look(in: worker)
      try await experiment.kill(worker, after: limit)
    }
  }
  try await context.withWorker { try await experiment.look(in: $0) }
}

private func checkOpening(_ context: CheckContext) async throws {
  var experiment = StepExperiment(context, .batches)
  let killsOfOpening = 2
  for _ in 0...(context.budget.kills / (1 + killsOfOpening)) {
    context.noteProgress()
    try await context.withWorker { try await experiment.kill($0, after: 6) }
    for _ in 0..<killsOfOpening {
      try await context.withWorker { try await experiment.killWhileOpening($0) }
    }
    try await context.withWorker { try await experiment.look(in: $0) }
  }
}

/// Kills processes that work on a store after many changes, when the engine may be compacting its files.
func checkKillsLate(_ context: CheckContext, after rounds: RoundLimit) async throws {
  var experiment = StepExperiment(context, .life)
  try await experiment.live(rounds, in: context)
  for _ in 0..<max(1, context.budget.kills / 2) {
    context.noteProgress()
    try await context.withWorker { worker in
      try await experiment.look(in: worker)
      try await experiment.kill(worker, after: 400)
    }
  }
  try await context.withWorker { try await experiment.look(in: $0) }
}

/// Processes that perform one numbered step after the other, on the same files, until they are killed.
private struct StepExperiment {
  private let context: CheckContext
  private let place: URL
  private let steps: NumberedSteps
  private var processKiller: ProcessKiller
  private var expected: ExpectedContents
  /// The step that was in progress when the last process was killed. It is never repeated, because values
  /// identify steps.
  private var underWay: Int?
  private var next = 1
  private var killCount = 0
  /// When the last process died.
  private var end: Date?

  init(_ context: CheckContext, _ kind: NumberedSteps.Kind) {
    self.context = context
    place = context.place
    steps = NumberedSteps(batches: NumberedBatches(seed: context.budget.seed), kind: kind)
    processKiller = ProcessKiller(seed: context.budget.seed)
    expected = ExpectedContents(in: context.capabilities)
  }

  /// Has a process read everything, and compares the result with the acknowledged steps.
  mutating func look(in worker: WorkerProcess) async throws {
    let entries = try await afterKills(killCount) {
      try await context.readEverything(in: worker)
    }
    let operations = underWay.map(steps.operations) ?? []
    underWay = nil
    try await afterKills(killCount) {
      try expected.check(entries, underWay: operations, writtenUntil: end)
    }
    end = nil
  }

  /// Performs the first steps in this process.
  mutating func live(_ rounds: RoundLimit, in context: CheckContext) async throws {
    let engine = try await context.open()
    for _ in rounds {
      try await steps.perform(next, on: engine)
      expected.apply(steps.operations(of: next))
      next += 1
    }
    try await context.close(engine)
  }

  /// Kills a process that performs steps, after at most this many. The contents must have been checked since the last
  /// kill.
  mutating func kill(_ worker: WorkerProcess, after limit: Int) async throws {
    let work = WriteSteps(place: place, steps: steps, first: next)
    let acknowledged = try await processKiller.kill(
      worker, at: .working(limit: limit), of: work, noting: context.progress
    ).filter { $0 > 0 }
    for number in acknowledged { expected.apply(steps.operations(of: number)) }
    let last = acknowledged.last ?? next - 1
    (underWay, next) = (last + 1, last + 2)
    killCount += 1
    end = Date()
    // Entries that are written by a later recovery get a different time.
    try await letClockAdvance()
  }

  /// Kills a process that opens the place, possibly while it reads the entries or closes the place again.
  mutating func killWhileOpening(_ worker: WorkerProcess) async throws {
    _ = try await processKiller.kill(worker, at: .opening, of: ReadEverything(place: place))
    killCount += 1
  }
}

extension CheckContext {
  /// All entries of the place, as read by a process that reports progress now and then.
  fileprivate func readEverything(in worker: WorkerProcess) async throws -> [StorageEntry] {
    var entries: [StorageEntry] = []
    try await translatingWorkerErrors {
      for try await some in try worker.start(ReadEverything(place: place, reportsProgress: true)) {
        noteProgress()
        entries += some.map(\.entry)
      }
    }
    return entries
  }
}

// MARK: - Tasks

private func checkTasks(_ context: CheckContext) async throws {
  let tasks = ConcurrentWriters(seed: context.budget.seed, writerCount: 8)
  let writers = 0..<tasks.writerCount
  var processKiller = ProcessKiller(seed: context.budget.seed)
  var expected = writers.map { _ in ExpectedContents(in: context.capabilities) }
  var next = writers.map { _ in 1 }

  for killed in 1...max(1, context.budget.kills) {
    context.noteProgress()
    let work = WriteInTasks(place: context.place, tasks: tasks, first: next)
    let messages = try await context.withWorker { worker in
      try await processKiller.kill(worker, at: .working(limit: 60), of: work, noting: context.progress)
    }
    for message in messages {
      expected[message.writer].apply([tasks.operation(message.number, of: message.writer)])
      next[message.writer] = message.number + 1
    }
    let entries = try await afterKills(killed) {
      try await context.withWorker { try await context.readEverything(in: $0) }
    }
    try await afterKills(killed) {
      for writer in writers {
        let own = entries.filter { $0.key.value.hasPrefix(tasks.prefix(of: writer)) }
        try expected[writer].check(own, underWay: [tasks.operation(next[writer], of: writer)])
        next[writer] += 1
      }
      try expect(entries.count, is: expected.map(\.count).reduce(0, +), "the number of entries")
    }
  }
}

// MARK: - Chains

private func checkChains(_ context: CheckContext) async throws {
  var processKiller = ProcessKiller(seed: context.budget.seed)
  var generation = 0
  for killed in 1...max(1, context.budget.kills) {
    context.noteProgress()
    let work = RunChains(place: context.place, first: generation + 1)
    let acknowledged = try await context.withWorker { worker in
      try await processKiller.kill(worker, at: .working(limit: 6), of: work, noting: context.progress)
    }
    let last = max(generation, acknowledged.last ?? 0)
    let items = try await afterKills(killed) {
      try await context.withWorker { try await $0.perform(ReadStore(place: context.place)) }
    }.flatMap { $0 }
    try await afterKills(killed) { generation = try identify(items, last) }
  }
}

/// Determines which generation the items are: the last acknowledged one or the next.
private func identify(_ items: [CheckedItem], _ last: Int) throws -> Int {
  for generation in [last, last + 1] where items == Generation.items(generation) { return generation }
  let found = Set(items.map(\.version))
  if found.count == 1, let version = found.first, version < Double(last) {
    throw Violation(
      "the items were those of chain \(version), but chain \(last) had been acknowledged", rule: .w6)
  }
  for generation in [last, last + 1] where Set(items) == Set(Generation.items(generation)) {
    throw Violation("the items of chain \(generation) were not in insertion order", rule: .s4)
  }
  throw Violation(
    "there were \(items.count) items, from the chains \(describe(found.sorted())); the last acknowledged "
      + "chain was \(last)")
}

/// Adds to a violation the number of kills after which it was seen.
private func afterKills<Result>(_ count: Int, _ body: () async throws -> Result) async throws -> Result {
  do {
    return try await body()
  } catch let violation as Violation where count > 0 {
    throw Violation("after \(count == 1 ? "a kill" : "\(count) kills"), \(violation)", rule: violation.rule)
  }
}
