import StockroomCore

// Concurrent histories that are recorded and searched for a legal order: rules C1, W4, R3 and C4.

extension CheckDefinition {
  @CheckList static var linearizabilityChecks: [CheckDefinition] {
    Check(
      .c1, "linearizability.single-keys",
      "what many tasks read, write and remove under a few keys has happened in some order"
    ) { context in
      try await checkHistories(
        of: HistoryWorkload(methods: [(.read, 10), (.exists, 3), (.write, 10), (.remove, 2)]), in: context)
    }
    Check(
      .c1, "linearizability.equal-values",
      "what many tasks read, write and remove has happened in some order, when many values are equal"
    ) { context in
      let methods: [(HistoryCall.Method, Int)] = [(.read, 12), (.exists, 2), (.write, 9), (.remove, 2)]
      // More keys, as equal values leave more orders to look at.
      try await checkHistories(
        of: HistoryWorkload(methods: methods, keyCount: 10, usesFewValues: true), in: context)
    }
    Check(
      .w4, "linearizability.batches",
      "batches and single calls of many tasks have happened in some order, each batch at one moment",
      needs: .atomicBatches
    ) { context in
      try await checkHistories(of: .batches, in: context)
    }
    Check(
      .r3, "linearizability.whole-reads",
      "reads of many entries fit between the writes of many tasks, each at one moment if the engine says so"
    ) { context in
      let methods: [(HistoryCall.Method, Int)] = [
        (.read, 4), (.write, 12), (.remove, 3), (.readMany, 3), (.readManyWithKeys, 2), (.keysExist, 2),
        (.readAll, 3), (.readAllData, 1), (.readAllEntries, 1), (.allKeys, 2), (.keyCount, 2), (.scan, 3),
      ]
      try await checkHistories(of: HistoryWorkload(methods: methods, writers: 8), in: context)
    }
    Check(
      .c4, "linearizability.cancellation",
      "of the cancelled calls of many tasks each has done all of its work at one moment, or none"
    ) { context in
      var workload = HistoryWorkload.batches
      workload.cancels = true
      try await checkHistories(of: workload, in: context)
    }
  }
}

extension HistoryWorkload {
  /// Changes of one and of many keys, and reads of single keys, which notice half a batch if they come in between.
  fileprivate static var batches: HistoryWorkload {
    HistoryWorkload(
      methods: [
        (.read, 12), (.exists, 2), (.write, 6), (.remove, 1), (.writeMany, 6), (.removeMany, 1), (.apply, 4),
        (.removeAll, 1),
      ], keyCount: 5, writers: 6)
  }
}

/// Records round after round and checks each, until there are as many calls as the budget asks for.
private func checkHistories(of workload: HistoryWorkload, in context: CheckContext) async throws {
  let engine = try await context.open()
  let budget = context.budget
  let start = ContinuousClock.now
  var model = AtomicityModel(keyCount: workload.keyCount)
  model.batchesAreAtomic = context.capabilities.contains(.atomicBatches)
  model.readsAreAtomic = context.capabilities.contains(.snapshotReads)
  var state = [Int](repeating: Cell.absent, count: workload.keyCount)
  var (calls, rounds, undecided) = (0, 0, 0)
  repeat {
    context.noteProgress()
    let history = await workload.round(
      rounds, on: engine, calls: min(HistoryWorkload.callsInRound, max(160, budget.operations - calls)),
      seed: budget.seed, until: budget.deadline(from: start))
    try Task.checkCancellation()
    try expectMostlyAnswers(history)
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
    throw Skip(reason: "The calls of the tasks overlap so much that their orders are too many to look at.")
  }
}

/// Fails for an engine that throws again and again though nothing is wrong, and whose other answers so say little; or that
/// cancels calls by itself.
private func expectMostlyAnswers(_ history: [HistoryCall]) throws {
  if let call = history.first(where: { $0.answer == .threw(.cancelledByNobody) }) {
    throw Violation("\(call), although nobody had cancelled its task", rule: .c4)
  }
  let failures = history.count { $0.answer == .threw(.unclear) || $0.answer == .threw(.refused) }
  let audit = history.contains { $0.task == 0 && $0.answer == .threw(.unclear) }
  try expect(
    failures * 8 <= history.count && failures <= 40 && !audit,
    "\(failures) of \(history.count) calls of many tasks threw although nothing was wrong")
}

/// What the last reads of a round have found.
private func stateAfter(_ history: [HistoryCall], keyCount: Int) -> [Int] {
  var state = [Int](repeating: Cell.absent, count: keyCount)
  for call in history where call.task == 0 {
    if case .found(let values) = call.answer { for (key, value) in values { state[key] = value } }
  }
  return state
}

extension ConformanceBudget {
  /// When a slow engine has been watched for long enough, at no more than the budget of a test suite.
  fileprivate func deadline(from start: ContinuousClock.Instant) -> ContinuousClock.Instant? {
    if let duration { return start + duration }
    return operations <= ConformanceBudget().operations ? start + .milliseconds(400) : nil
  }

  fileprivate func wantsMore(thanCalls calls: Int, since start: ContinuousClock.Instant) -> Bool {
    if let deadline = deadline(from: start), ContinuousClock.now >= deadline { return false }
    return duration != nil || calls < operations
  }
}
