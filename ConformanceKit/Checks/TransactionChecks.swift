#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Transactions take effect one after the other: rule T1. Each check is about one anomaly that weaker isolation levels
// allow (Berenson and others, A critique of ANSI SQL isolation levels, 1995).

extension CheckDefinition {
  @CheckList static var transactionChecks: [CheckDefinition] {
    Check(
      .t1, "transactions.lose-no-update",
      "transactions of many tasks that increment a counter lose no increment",
      needs: .transactions
    ) { context in
      let engine = try await context.open()
      try await checkIncrements(context, [engine])
    }
    Check(
      .t1, "transactions.of-two-engines-lose-no-update",
      "transactions of two engines on one place that increment a counter lose no increment, unless the "
        + "second open throws locked",
      needs: [.persistent, .transactions]
    ) { context in
      let first = try await context.open()
      guard let second = try await context.openUnlessLocked(context.place) else { return }
      try await checkIncrements(context, [first, second])
    }
    Check(
      .t1, "transactions.undo-no-other-write",
      "a transaction does not undo single calls and batches that happen after it has read",
      needs: .transactions
    ) { try await checkOtherWrites($0) }
    Check(
      .t1, "transactions.that-write-nothing",
      "a transaction that writes nothing changes neither entries nor times",
      needs: .transactions
    ) { try await checkReadOnly($0) }
  }
}

extension StorageTransaction {
  /// The number stored under the key; 0 if it is absent.
  func number(_ key: CacheKey) throws -> Int { try ConformanceKit.number(of: read(key: key), key) }
}

extension EngineUnderTest {
  /// Runs a transaction whose body reads, waits until others have finished, and continues, so that they always overlap.
  ///
  /// The body waits for at most 50 ms, because the others may have to wait for it.
  ///
  /// - Parameter rest: What others do afterwards unless they had to wait for the body, which waits up to 5 s more for it.
  func withTransaction<Read, Result>(
    reading read: @escaping @Sendable (any StorageTransaction) throws -> Read,
    meanwhile others: () async throws -> Result, andThen rest: () async throws -> Void = {},
    then goOn: @escaping @Sendable (any StorageTransaction, Read) throws -> Void
  ) async throws -> Result {
    let (hasRead, isDone, isRestDone) = (Latch(), Latch(), Latch())
    let isBodyWaiting = MutexProtected(true)
    async let transaction: Void = { @concurrent in
      try await withTransaction { transaction in
        let found = try read(transaction)
        hasRead.signal()
        let areOthersDone = isDone.wait(for: .milliseconds(50))
        isBodyWaiting.withLock { $0 = areOthersDone }
        if areOthersDone { _ = isRestDone.wait(for: .seconds(5)) }
        try goOn(transaction, found)
      }
    }()
    _ = await hasRead.waitElsewhere(for: .seconds(1))
    let result: Result
    do {
      defer { isRestDone.signal() }
      result = try await others()
      isDone.signal()
      if isBodyWaiting.withLock({ $0 }) { try await rest() }
    }
    try await transaction
    return result
  }
}

/// The number encoded in a value; 0 if there is none.
func number(of value: Data?, _ key: CacheKey) throws -> Int {
  guard let value else { return 0 }
  guard let number = Int(String(decoding: value, as: UTF8.self)) else {
    throw Violation("the value of \(key) was \(describe(value)), which was never written", rule: .w1)
  }
  return number
}

// MARK: - Lost updates

private func checkIncrements(_ context: CheckContext, _ engines: [EngineUnderTest]) async throws {
  let tasks = 16
  let rounds = context.rounds(quick: 160, standard: 800, exhaustive: 20_000, of: "increments")
  let counter = key("counter")
  let barriers = (0..<3).map { _ in BodyBarrier() }
  try await gather(0..<2) { task in
    for barrier in barriers {
      try await engines[task % engines.count].withTransaction { transaction in
        let number = try transaction.number(counter)
        barrier.arrive()
        try transaction.write(data("\(number + 1)"), key: counter)
      }
    }
  }
  let counts = try await gather(0..<tasks) { task in
    var count = 0
    for _ in rounds.share(of: task, among: tasks) {
      try await engines[task % engines.count].withTransaction { transaction in
        try transaction.write(data("\(try transaction.number(counter) + 1)"), key: counter)
      }
      count += 1
    }
    return count
  }
  for engine in engines {
    let sum = try number(of: try await engine.read(key: counter), counter)
    try expect(
      sum, is: 2 * barriers.count + counts.reduce(0, +), "the counter that \(tasks) tasks had incremented")
  }
}

private func checkOtherWrites(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let counter = key("counter")
  // Larger than the number of increments between two writes.
  let step = 1_000_000
  @Sendable func write(_ round: Int) async throws -> Int {
    let number = (round + 1) * step
    let value = data("\(number)")
    switch round % 3 {
    case 0: try await engine.write(value, key: counter)
    case 1: try await engine.write([(counter, value), (key("another"), value)])
    default: try await engine.apply([.remove(key: counter), .write(value, key: counter)])
    }
    return number
  }
  @Sendable func expectKept(_ written: Int) async throws {
    let found = try number(of: try await engine.read(key: counter), counter)
    try expect(
      found >= written,
      "a key into which \(written) had been written, and which only grows, was \(found) after that: a transaction had "
        + "overwritten it")
  }
  let overlappingRounds = 12
  for round in 0..<overlappingRounds {
    // An engine whose version numbers start again at 1 when a key is recreated assigns both writes the same version.
    let isNewEachTime = round >= 6
    if isNewEachTime {
      try await engine.remove(key: counter)
      try await engine.write(data("\(round * step + step / 2)"), key: counter)
    }
    let written = try await engine.withTransaction {
      try $0.number(counter)
    } meanwhile: {
      if isNewEachTime { try await engine.remove(key: counter) }
      return try await write(round)
    } then: { transaction, number in
      try transaction.write(data("\(number + 1)"), key: counter)
    }
    try await expectKept(written)
  }
  let writers = try await [engine, context.openAnotherIfPossible()].compactMap { $0 }
  for writer in writers {
    for method in ChangeMethod.allCases where method != .transaction {
      context.noteProgress()
      try await changeBesideBody(method, engine, by: writer)
    }
  }
  try await changeWhatBodiesRead(context, engine, by: writers)
  for writer in writers {
    try await changeAmongMany(context, engine, by: writer)
    try await readBesideBody(engine, by: writer)
  }
  for (what, decision) in decisions {
    context.noteProgress()
    try await decideBesideWrite(what, decision, engine)
  }
  if context.capabilities.contains(.atomicBatches) { try await writeBesideRemoval(engine) }
  let rounds = context.rounds(quick: 60, standard: 300, exhaustive: 5_000, of: "writes beside transactions")
  try await whileRunning {
    for round in rounds { try await expectKept(try await write(overlappingRounds + round)) }
  } readers: { _ in
    try await engine.withTransaction { transaction in
      try transaction.write(data("\(try transaction.number(counter) + 1)"), key: counter)
    }
  }
}

// MARK: - Reading only

/// An engine may log what it has read, and compact earlier writes: growing files break no rule.
private func checkReadOnly(_ context: CheckContext) async throws {
  let engine = try await context.open()
  try await engine.write(entries(keys(8)))
  let before = try await engine.readAllEntries()
  for number in 0..<100 {
    let count = try await engine.withTransaction { transaction in
      if number.isMultiple(of: 2) { return 8 }
      _ = try transaction.read(keys: keys(8))
      _ = try transaction.scan(.all, limit: nil)
      return try transaction.keyCount()
    }
    try expect(count, is: 8, "what the body of a transaction had returned")
  }
  let after = try await engine.readAllEntries()
  try expect(
    after == before, "100 transactions that wrote nothing had changed entries or their times")
}
