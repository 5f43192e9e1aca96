#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// One place in two processes: rule C3.

extension CheckDefinition {
  @CheckList static var multiProcessChecks: [CheckDefinition] {
    Check(
      .c3, "processes.second-opening",
      "a place that another process has open is shared with multiProcess; without it, opening throws locked "
        + "until that process has closed its engine", needs: .persistent, needsWorker: true
    ) { try await checkSecondOpening($0) }
    Check(
      .c3, "processes.killed-holder",
      "after a process is killed, the place that it had open can be opened at once", needs: .persistent,
      needsWorker: true
    ) { try await checkKilledHolder($0) }
    Check(
      .c3, "processes.see-each-others-writes",
      "acknowledged writes of one process are visible to the other at once",
      needs: [.persistent, .multiProcess], needsWorker: true
    ) { context in try await asSharingViolation { try await checkTurns(context) } }
    Check(
      .c3, "processes.write-at-the-same-time", "concurrent writes of two processes are not lost",
      needs: [.persistent, .multiProcess], needsWorker: true
    ) { try await checkSharedWork($0) }
    Check(
      .c3, "processes.outlive-each-other",
      "a process continues to read and write after another process that was writing to the same place is "
        + "killed",
      needs: [.persistent, .multiProcess], needsWorker: true
    ) { context in try await asSharingViolation { try await checkOutliving(context, .batches) } }
    Check(
      .c3, "processes.outlive-each-other-in-transactions",
      "a process continues its transactions after another process that was running some on the same place is "
        + "killed",
      needs: [.persistent, .multiProcess, .transactions], needsWorker: true
    ) { context in try await asSharingViolation { try await checkOutliving(context, .transactions) } }
    Check(
      .t1, "processes.transfers",
      "concurrent transactions of several processes that transfer amounts and increment a counter lose "
        + "nothing, and every read of another process has the right total",
      needs: [.persistent, .multiProcess, .transactions], needsWorker: true
    ) { try await checkTransfers($0) }
  }
}

// MARK: - Opening

private func checkSecondOpening(_ context: CheckContext) async throws {
  let place = context.place
  let isShared = context.capabilities.contains(.multiProcess)
  try await context.withWorker { worker in
    var engine = try await context.open()
    // Some locks are only taken by the first write.
    if !isShared {
      try await expectLocked(context) { try await worker.perform(CallEngine(.open, at: place)) }
    }
    try await engine.write(data("1"), key: key("by the parent"))
    if !isShared {
      try await expectLocked(context) { try await worker.perform(CallEngine(.open, at: place)) }
      // A lock may be on a file that is replaced, or may be released when a reader closes its descriptor.
      for method in ReadMethod.allCases { _ = try await method.found(of: [key("by the parent")], in: engine) }
      try await engine.verify()
      try await expectLocked(context) { try await worker.perform(CallEngine(.open, at: place)) }
      try await overwriteMuch(engine, context)
      try await expectLocked(context) { try await worker.perform(CallEngine(.open, at: place)) }
      try await engine.removeAllData()
      try await engine.write(data("1"), key: key("by the parent"))
      try await expectLocked(context) { try await worker.perform(CallEngine(.open, at: place)) }
      try await context.close(engine)
    }
    try await worker.perform(CallEngine(.open, at: place))
    if !isShared { try await expectLocked(context) { _ = try await context.open() } }
    try await expectValues(["by the parent": "1"], in: worker, place)
    try await worker.perform(CallEngine(.write([.init(key: "by the worker", data: data("2"))]), at: place))
    if isShared {
      try await expectStored([(key("by the worker"), data("2"))], in: engine)
    } else {
      try await expectLocked(context) { _ = try await context.open() }
    }
    try await worker.perform(CallEngine(.close, at: place))
    if isShared { try await context.close(engine) }
    engine = try await context.open()
    try await expectStored(
      [(key("by the parent"), data("1")), (key("by the worker"), data("2"))], in: engine)
  }
}

private func checkKilledHolder(_ context: CheckContext) async throws {
  for round in 0..<3 {
    let written = SharedWork.Entry(key: "\(round)", data: data("round \(round)"))
    try await context.withWorker { worker in
      try await worker.perform(CallEngine(.open, at: context.place))
      try await worker.perform(CallEngine(.write([written]), at: context.place))
    }
    let engine = try await context.open()
    let all = (0...round).map { (key("\($0)"), data("round \($0)")) }
    do {
      try await expectStored(all, in: engine)
    } catch let lost as Violation {
      throw Violation(lost.description, rule: .w6)
    }
    try await context.close(engine)
  }
}

/// Fails unless opening throws `locked` and names the place.
private func expectLocked(_ context: CheckContext, _ open: () async throws -> Void) async throws {
  let what = "opening a place that another process has open"
  let (code, description): (String?, String)
  // Each call may wait for a minute before it throws.
  defer { context.noteProgress() }
  do {
    try await open()
    throw Violation("\(what) did not throw")
  } catch let error as WorkerError {
    (code, description) = (error.code, error.description)
  } catch let failure as CallFailure {
    (code, description) = (WorkerError(failure).code, failure.description)
  }
  try expect(code == StorageError.Code.locked.name, "\(what) did not throw locked: \(shortened(description))")
  guard description.contains(context.root.lastPathComponent) else {
    throw Violation(
      "\(what) threw an error that does not name the path: \(shortened(description))", rule: .o2)
  }
}

private func expectValues(_ values: [String: String], in worker: WorkerProcess, _ place: URL) async throws {
  let found = try await worker.entries(at: place)
  let texts = Dictionary(found.map { ($0.key.value, String(decoding: $0.data, as: UTF8.self)) }) { first, _ in
    first
  }
  try expect(texts == values, "the other process found \(describe(texts)) instead of \(describe(values))")
}

extension WorkerProcess {
  /// All entries, as returned by the engine that is open in the worker.
  func entries(at place: URL) async throws -> [StorageEntry] {
    try await perform(CallEngine(.read, at: place)).flatMap { $0 }.map(\.entry)
  }
}

// MARK: - Working together

/// Reports a violation of the sharing rule if one process misses what another one acknowledged.
private func asSharingViolation(_ body: () async throws -> Void) async throws {
  do {
    try await body()
  } catch let violation as Violation where violation.rule == .w6 {
    throw Violation(violation.description)
  }
}

private func checkTurns(_ context: CheckContext) async throws {
  let place = context.place
  let steps = NumberedSteps(batches: NumberedBatches(seed: context.budget.seed), kind: .batches)
  let engine = try await context.open()
  // The expected contents are tracked separately for each process, including timestamps.
  var (ours, theirs) = (
    ExpectedContents(in: context.capabilities), ExpectedContents(in: context.capabilities)
  )
  try await context.withWorker { worker in
    try await worker.perform(CallEngine(.open, at: place))
    for number in 1...24 {
      let operations = steps.operations(of: number)
      if number.isMultiple(of: 2) {
        try await engine.perform(operations)
      } else {
        try await worker.perform(CallEngine(.perform(operations.map(SentOperation.init), by: nil), at: place))
      }
      ours.apply(operations)
      theirs.apply(operations)
      // The process that did not write reads first.
      if number.isMultiple(of: 2) { try theirs.check(try await worker.entries(at: place)) }
      try await ours.verify(engine)
      if !number.isMultiple(of: 2) { try theirs.check(try await worker.entries(at: place)) }
    }
    try await worker.perform(CallEngine(.close, at: place))
  }
  try await ours.verify(engine)
}

private func checkSharedWork(_ context: CheckContext) async throws {
  let work = SharedWork(batchCount: 30)
  let isAtomic = context.capabilities.contains(.atomicBatches)
  let engine = try await context.open()
  try await context.withWorker { worker in
    try await worker.perform(CallEngine(.open, at: context.place))
    async let theirs: Void = { @concurrent in
      try await worker.perform(CallEngine(.work(work, share: "worker"), at: context.place))
    }()
    try await gather(0..<2) { try await work.perform("task \($0)", on: engine) }
    try await theirs
    let shares = ["worker", "task 0", "task 1"]
    try work.verify(try await worker.entries(at: context.place), by: shares, isAtomic: isAtomic)
    try work.verify(try await ExpectedContents.agreedEntries(of: engine), by: shares, isAtomic: isAtomic)
    try await engine.removeAllData()
    try await checkReadsBesideAnother(engine, context) { changes in
      for try await _ in try worker.start(CallEngine(.pass(changes), at: context.place)) {
        context.noteProgress()
      }
    }
  }
}

private func checkOutliving(_ context: CheckContext, _ kind: NumberedSteps.Kind) async throws {
  let steps = NumberedSteps(batches: NumberedBatches(seed: context.budget.seed), kind: kind)
  var processKiller = ProcessKiller(seed: ~context.budget.seed)
  var expected = ExpectedContents(in: context.capabilities)
  let engine = try await context.open()
  var next = 1
  for _ in 0...(context.budget.kills / 2) {
    context.noteProgress()
    let work = WriteSteps(place: context.place, steps: steps, first: next)
    let acknowledged = try await context.withWorker { worker in
      try await processKiller.kill(worker, at: .working(limit: 12), of: work).filter { $0 > 0 }
    }
    for number in acknowledged { expected.apply(steps.operations(of: number)) }
    let last = acknowledged.last ?? next - 1
    // A change that was in progress when its process died may take effect at any time after that. Some engines complete
    // it at the next write. These two changes leave no entry. After them, the change of the dead process has taken
    // effect or never will.
    try await engine.write(data("v"), key: key("settling"))
    try await engine.remove(key: key("settling"))
    try await expected.verify(engine, underWay: steps.operations(of: last + 1))
    try await steps.perform(last + 2, on: engine)
    expected.apply(steps.operations(of: last + 2))
    try await expected.verify(engine)
    next = last + 3
  }
}

// MARK: - Transfers

private func checkTransfers(_ context: CheckContext) async throws {
  let work = TransferWork(
    accounts: Accounts(count: 10, balance: 100),
    count: context.byLevel(quick: 24, standard: 100, exhaustive: 5_000))
  let workers = try (0..<context.byLevel(quick: 2, standard: 3, exhaustive: 4)).map { _ in
    try context.startWorker()
  }
  let engine = try await context.open()
  try await engine.write(work.accounts.opening)
  let showsSnapshot = context.capabilities.contains(.snapshotReads)
  try await translatingWorkerErrors {
    for worker in workers { try await worker.perform(CallEngine(.open, at: context.place)) }
    try await whileRunning(
      {
        try await gather(0..<workers.count) { number in
          let work = CallEngine(.transfer(work, share: number), at: context.place)
          for try await _ in try workers[number].start(work) { context.noteProgress() }
        }
      }, readerCount: 2
    ) { reader in
      if reader == 0 || !showsSnapshot {
        try await engine.withTransaction { try work.accounts.check(in: $0, 1) }
      } else {
        try work.accounts.check(
          try await engine.read(keys: work.accounts.keys), "read(keys:) beside other processes")
      }
    }
    for worker in workers { try await worker.perform(CallEngine(.close, at: context.place)) }
  }
  for worker in workers {
    worker.kill()
    await worker.waitUntilEnd()
  }
  try work.accounts.check(try await engine.read(keys: work.accounts.keys), "read(keys:) after all transfers")
  let counted = try number(of: try await engine.read(key: TransferWork.counter), TransferWork.counter)
  try expect(
    counted, is: workers.count * work.count, "the counter that \(workers.count) processes had incremented")
}
