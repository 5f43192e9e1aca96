import StockroomCore

// Concurrent histories that are recorded and checked for a legal order: rules C1, W4, R3 and C4.

extension CheckDefinition {
  @CheckList static var linearizabilityChecks: [CheckDefinition] {
    Check(
      .c1, "linearizability.single-keys",
      "reads, writes and removals of a few keys by many tasks are linearizable"
    ) { context in
      try await checkHistories(
        of: HistoryWorkload(methods: [(.read, 10), (.exists, 3), (.write, 10), (.remove, 2)]), in: context)
    }
    Check(
      .c1, "linearizability.equal-values",
      "reads, writes and removals by many tasks are linearizable when many values are equal"
    ) { context in
      let methods: [(HistoryCall.Method, Int)] = [(.read, 12), (.exists, 2), (.write, 9), (.remove, 2)]
      // Uses more keys, because equal values leave more orders to check.
      try await checkHistories(
        of: HistoryWorkload(methods: methods, keyCount: 10, usesFewValues: true), in: context)
    }
    Check(
      .w4, "linearizability.batches",
      "batches and single calls of many tasks are linearizable, each batch as one step",
      needs: .atomicBatches
    ) { context in
      try await checkHistories(of: .batches, in: context)
    }
    Check(
      .r3, "linearizability.whole-reads",
      "reads of many entries among the writes of many tasks are linearizable, each as one step with "
        + "snapshotReads"
    ) { context in
      let methods: [(HistoryCall.Method, Int)] = [
        (.read, 4), (.write, 12), (.remove, 3), (.readMany, 3), (.readManyWithKeys, 2), (.readEntries, 2),
        (.keysExist, 2),
        (.readAll, 3), (.readAllData, 1), (.readAllEntries, 1), (.allKeys, 2), (.keyCount, 2), (.scan, 3),
      ]
      try await checkHistories(of: HistoryWorkload(methods: methods, writers: 8), in: context)
    }
    Check(
      .c4, "linearizability.cancellation",
      "each cancelled call of many tasks does all of its work as one step, or none"
    ) { context in
      var workload = HistoryWorkload.batches
      workload.cancels = true
      try await checkHistories(of: workload, in: context)
    }
    Check(
      .t1, "linearizability.transactions",
      "transactions, batches and single calls of many tasks are linearizable, each transaction as one step "
        + "with all its reads and writes; those that threw or were cancelled have no effect",
      needs: .transactions
    ) { context in
      try await checkHistories(of: .transactions, in: context)
    }
    Check(
      .c3, "linearizability.processes",
      "batches, single calls and transactions of several processes are linearizable together",
      needs: [.persistent, .multiProcess], needsWorker: true
    ) { try await checkProcesses($0) }
    Check(
      .c2, "linearizability.two-engines",
      "calls of two engines of one process on one place are linearizable together, unless the second open "
        + "throws locked",
      needs: .persistent
    ) { try await checkTwoEngines($0) }
  }
}

extension HistoryWorkload {
  /// Changes of one and of many keys. Reads of single keys between them notice half a batch.
  fileprivate static var batches: HistoryWorkload {
    HistoryWorkload(
      methods: [
        (.read, 12), (.exists, 2), (.write, 6), (.remove, 1), (.writeMany, 5), (.writeEntries, 1),
        (.removeMany, 1), (.apply, 4), (.removeAll, 1),
      ], keyCount: 5, writers: 6)
  }
}

extension HistoryWorkload {
  /// Transactions, among all kinds of calls that may conflict with them.
  static var transactions: HistoryWorkload {
    var workload = HistoryWorkload(
      methods: [
        (.transaction, 16), (.read, 10), (.exists, 2), (.write, 4), (.remove, 1), (.writeMany, 2),
        (.apply, 2),
        (.removeAll, 1), (.readAll, 1),
      ], keyCount: 5, writers: 6)
    workload.cancels = true
    return workload
  }
}

/// Records one round after the other in one process.
private func checkHistories(of workload: HistoryWorkload, in context: CheckContext) async throws {
  let engine = try await context.open()
  let budget = context.budget
  try await checkHistories(of: workload, in: context) { round, calls, deadline in
    await workload.round(round, on: [engine], calls: calls, seed: budget.seed, until: deadline)
  }
}

/// Records one round after the other on two engines that have the same place open.
private func checkTwoEngines(_ context: CheckContext) async throws {
  let first = try await context.open()
  guard let second = try await context.openUnlessLocked(context.place) else { return }
  let workload = HistoryShare.workload(hasTransactions: context.capabilities.contains(.transactions))
  do {
    try await checkHistories(of: workload, in: context) { round, calls, deadline in
      await workload.round(
        round, on: [first, second], calls: calls, seed: context.budget.seed, until: deadline)
    }
  } catch let violation as Violation where violation.rule != .t1 && violation.rule != .c4 {
    throw Violation(violation.description, rule: .c2, evidence: violation.evidence, seed: violation.seed)
  }
}

/// Records one round after the other in several processes, by a clock that they share.
private func checkProcesses(_ context: CheckContext) async throws {
  let count = context.byLevel(quick: 2, standard: 3, exhaustive: 4)
  let workers = try (0..<count).map { _ in try context.startWorker() }
  let engine = try await context.open()
  let hasTransactions = context.capabilities.contains(.transactions)
  let workload = HistoryShare.workload(hasTransactions: hasTransactions)
  try await translatingWorkerErrors {
    for worker in workers { try await worker.perform(CallEngine(.open, at: context.place)) }
    do {
      try await checkHistories(of: workload, in: context) { round, calls, deadline in
        let seconds = deadline.map { max(0.1, ContinuousClock.now.duration(to: $0).inSeconds) }
        // Enough time to start the work in the last process.
        let start = MonotonicClock.nanoseconds + 5_000_000
        let shares = try await gather(0..<count) { process in
          let share = HistoryShare(
            place: context.place, round: round, process: process, processCount: count, calls: calls,
            seed: context.budget.seed, start: start, seconds: seconds, hasTransactions: hasTransactions)
          return try await workers[process].perform(share).flatMap { $0 }
        }
        let history = shares.flatMap { $0 }
        return await history + workload.audit(engine, MonotonicClock(), after: history)
      }
    } catch let violation as Violation where violation.rule != .t1 && violation.rule != .c4 {
      throw Violation(violation.description, rule: .c3, evidence: violation.evidence, seed: violation.seed)
    }
  }
  for worker in workers {
    worker.kill()
    await worker.waitUntilEnd()
  }
}

/// Checks one round after the other, until there are as many calls as the budget asks for.
///
/// - Parameter record: Makes about this many calls, and ends after the deadline.
private func checkHistories(
  of workload: HistoryWorkload, in context: CheckContext,
  record: (_ round: Int, _ calls: Int, _ deadline: ContinuousClock.Instant?) async throws -> [HistoryCall]
) async throws {
  let budget = context.budget
  let start = ContinuousClock.now
  var model = AtomicityModel(keyCount: workload.keyCount)
  model.batchesAreAtomic = context.capabilities.contains(.atomicBatches)
  model.readsAreAtomic = context.capabilities.contains(.snapshotReads)
  var state = [Int](repeating: Cell.absent, count: workload.keyCount)
  var (calls, rounds, undecided) = (0, 0, 0)
  repeat {
    context.noteProgress()
    let history = try await record(
      rounds, min(HistoryWorkload.callsInRound, max(160, budget.operations - calls)),
      budget.deadline(from: start))
    try Task.checkCancellation()
    try expectMostlyAnswers(history, context.capabilities)
    let checker = LinearizabilityChecker(model: model, initial: state)
    switch checker.check(history).outcome {
    case .legal: break
    case .undecided: undecided += 1
    case .illegal:
      if let found = LinearizabilityViolation(history, checker: checker, ambiguous: .c1) {
        throw found.violation
      }
    }
    state = stateAfter(history, keyCount: workload.keyCount)
    calls += history.count
    rounds += 1
  } while budget.wantsMore(thanCalls: calls, since: start)
  if undecided == rounds {
    throw Skip(
      reason: "The calls of the tasks overlap so much that there are too many possible orders to check.")
  }
  if undecided > 0 {
    context.noteShortfall(
      "\(rounds - undecided) of \(rounds) histories; the others have too many possible orders")
  }
}

/// Fails if the engine throws repeatedly for no reason, because its other results then say little, or if it cancels
/// calls by itself.
private func expectMostlyAnswers(_ history: [HistoryCall], _ capabilities: EngineCapabilities) throws {
  if let call = history.first(where: { $0.answer == .threw(.unexpectedCancellation) }) {
    throw Violation("\(call), although its task had not been cancelled", rule: .c4)
  }
  // A change that is cancelled on its way to a server may have an unknown outcome.
  func mayBeUnknown(_ call: HistoryCall) -> Bool {
    capabilities.contains(.networked) && !call.changes.isEmpty && call.answer == .threw(.outcomeUnknown)
  }
  let unknown = history.count(where: mayBeUnknown)
  let failures = history.count { $0.answer.isUncertain || $0.answer == .threw(.refused) } - unknown
  let audit = history.contains { $0.task == 0 && $0.answer.isUncertain }
  try expect(
    failures * 8 <= history.count && failures <= 40 && unknown * 2 <= history.count && !audit,
    "\(failures + unknown) of \(history.count) calls of many tasks threw without a reason")
}

/// The values that the last reads of a round returned.
private func stateAfter(_ history: [HistoryCall], keyCount: Int) -> [Int] {
  var state = [Int](repeating: Cell.absent, count: keyCount)
  for call in history where call.task == 0 {
    if case .found(let values) = call.answer { for (key, value) in values { state[key] = value } }
  }
  return state
}

extension ConformanceBudget {
  /// When a slow engine has been tested for long enough, if the budget is that of a test suite.
  fileprivate func deadline(from start: ContinuousClock.Instant) -> ContinuousClock.Instant? {
    if let duration { return start + duration }
    return operations <= ConformanceBudget().operations ? start + .milliseconds(400) : nil
  }

  fileprivate func wantsMore(thanCalls calls: Int, since start: ContinuousClock.Instant) -> Bool {
    if let deadline = deadline(from: start), ContinuousClock.now >= deadline { return false }
    return duration != nil || calls < operations
  }
}
