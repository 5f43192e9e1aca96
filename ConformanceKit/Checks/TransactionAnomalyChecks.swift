#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// What a transaction must not see of others, and others of it: rule T1.

extension CheckDefinition {
  @CheckList static var transactionAnomalyChecks: [CheckDefinition] {
    Check(
      .t1, "transactions.no-write-skew",
      "of transactions that read two keys and write one of them each, the second sees the first",
      needs: .transactions
    ) { try await checkWriteSkew($0) }
    for (name, isEmpty) in looksForAnyEntry {
      Check(
        .t1, "transactions.no-phantoms-in-\(name)",
        "of transactions that write an entry if \(name) finds none, one does", needs: .transactions
      ) { try await checkPhantoms($0, name, isEmpty) }
    }
    Check(
      .t1, "transactions.read-one-moment",
      "all reads of a body show one moment, while transactions and batches move amounts between accounts",
      needs: .transactions
    ) { try await checkReadSkew($0) }
    Check(
      .t1, "transactions.show-nothing-early",
      "nobody reads what a body has written before the body has returned",
      needs: .transactions
    ) { try await checkDirtyReads($0) }
    Check(
      .t1, "transactions.of-long-bodies",
      "a body that takes a second or more loses nothing that another transaction has changed meanwhile",
      needs: .transactions
    ) { try await checkLongBody($0) }
    Check(
      .w2, "transactions.after-others",
      "what a transaction writes behind changes of others is later than these, by its times and in the order",
      needs: .transactions
    ) { try await checkTimesBehindOthers($0) }
    Check(
      .t1, "transactions.beside-openings",
      "a transaction does all of its work although another engine is opened on the place while its body runs",
      needs: [.transactions, .persistent]
    ) { try await checkOpeningBesideBody($0) }
  }
}

// MARK: - Write skew and phantoms

private func checkWriteSkew(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let onCall = [key("on call/one"), key("on call/two")]
  for round in context.rounds(quick: 30, standard: 150, exhaustive: 5_000, of: "rounds of two keys") {
    try await engine.write(onCall.map { ($0, data("1")) })
    let meeting = round < 3 ? Meeting(of: 4) : nil
    try await gather(0..<4) { task in
      try await engine.withTransaction { transaction in
        let sum = try onCall.reduce(0) { try $0 + transaction.number($1) }
        meeting?.arrive()
        if sum > 1 { try transaction.write(data("0"), key: onCall[task % 2]) }
      }
    }
    let values = try await engine.read(keys: onCall).map { String(decoding: $0, as: UTF8.self) }
    try expect(
      values.contains("1"),
      "two keys had \(describe(values)), though each transaction left one of them at 1 that it had read")
  }
}

private let looksForAnyEntry: [(String, @Sendable (any StorageTransaction) throws -> Bool)] = [
  ("scan", { try $0.scan(.prefix("seat/"), limit: 1).isEmpty }),
  ("keyCount", { try $0.keyCount() == 0 }),
  ("allKeys", { try $0.allKeys().isEmpty }),
  ("read", { transaction in try seats.allSatisfy { try transaction.read(key: $0) == nil } }),
  ("readMany", { try $0.read(keys: seats).isEmpty }),
  ("keyExists", { transaction in try !seats.contains { try transaction.keyExists($0) } }),
]

private let seats = (0..<6).map { key("seat/\($0)") }

private func checkPhantoms(
  _ context: CheckContext, _ name: String,
  _ isEmpty: @escaping @Sendable (any StorageTransaction) throws -> Bool
) async throws {
  let engine = try await context.open()
  for round in context.rounds(quick: 20, standard: 100, exhaustive: 3_000, of: "rounds of one seat") {
    try await engine.removeAllData()
    let meeting = round < 3 ? Meeting(of: seats.count) : nil
    try await gather(seats.indices) { task in
      try await engine.withTransaction { transaction in
        let isFree = try isEmpty(transaction)
        meeting?.arrive()
        if isFree { try transaction.write(data("taken"), key: seats[task]) }
      }
    }
    let keys = try await engine.allKeys()
    try expect(
      keys.count, is: 1, "the number of entries that transactions had written, each if \(name) found none,")
  }
}

// MARK: - Read skew and dirty reads

private func checkReadSkew(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let accounts = Accounts(count: 10, balance: 100)
  try await engine.write(accounts.opening)
  for round in 0..<3 {
    try await engine.withTransaction {
      try $0.read(key: accounts.keys[0])
    } meanwhile: {
      try await engine.withTransaction {
        try accounts.transfer(1 + round, from: accounts.keys[0], to: accounts.keys[1], in: $0)
      }
    } then: { transaction, first in
      let others = try accounts.keys.dropFirst().map { try transaction.read(key: $0) }
      try accounts.check(([first] + others).compactMap { $0 }, "the reads of one body")
    }
  }
  let showsOneMoment = context.capabilities.contains(.snapshotReads)
  let rounds = context.rounds(quick: 120, standard: 600, exhaustive: 20_000, of: "transfers")
  try await whileRunning {
    try await gather(0..<4) { task in
      for round in rounds.share(of: task, among: 4) {
        let (from, to) = accounts.pair(round)
        try await engine.withTransaction { try accounts.transfer(1 + round % 7, from: from, to: to, in: $0) }
      }
    }
  } readers: { reader in
    if reader > 1 || !showsOneMoment {
      try await engine.withTransaction { try accounts.check(in: $0, reader) }
    } else {
      try accounts.check(try await engine.read(keys: accounts.keys), "read(keys:)")
    }
  }
  try accounts.check(try await engine.read(keys: accounts.keys), "read(keys:) after all transfers")
}

/// A transaction whose body takes its time.
struct PausedBody: Sendable {
  private let hasBegun: Flag
  private let task: Task<Void, any Error>
  private let ended: Flag

  /// - Parameter body: Calls what it is given once, and takes so many milliseconds longer then.
  init(
    in engine: EngineUnderTest, milliseconds: Int,
    body: @escaping @Sendable (any StorageTransaction, _ pause: () -> Void) throws -> Void
  ) {
    let (hasBegun, ended) = (Flag(), Flag())
    (self.hasBegun, self.ended) = (hasBegun, ended)
    task = Task { @concurrent in
      defer { ended.set() }
      try await engine.withTransaction { transaction in
        try body(transaction) {
          hasBegun.set()
          System.pauseThread(milliseconds: milliseconds)
        }
      }
    }
  }

  var hasEnded: Bool { ended.isSet }

  /// Waits until the body has begun to take its time.
  func begin() async throws {
    while !hasBegun.isSet, !hasEnded { try await yieldToAllThreads() }
    if !hasBegun.isSet { try await task.value }
  }

  /// Waits until the transaction has returned.
  func end() async throws { try await task.value }
}

/// Changes the same entry, and makes a new one, while a body that does so too takes its time.
private func checkTimesBehindOthers(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let (both, first, second) = (key("both"), key("new, z"), key("new, a"))
  try await engine.write(data("0"), key: both)
  let seen = MutexProtected<Data?>(nil)
  let body = PausedBody(in: engine, milliseconds: 150) { transaction, pause in
    pause()
    // The last run counts. What it has seen says which of the two is first.
    let found = try transaction.read(key: both)
    seen.withLock { $0 = found }
    // Times tell the two from each other then.
    System.pauseThread(milliseconds: 6)
    try transaction.write(data("body"), key: both)
    try transaction.write(data("body"), key: second)
  }
  try await body.begin()
  try await engine.write([(both, data("other")), (first, data("other"))])
  let updated = try await engine.updatedAt(key: both)
  try await body.end()
  let isBehind = seen.withLock { $0 } == data("other")
  let found = try await engine.read(key: both)
  guard found == data(isBehind ? "body" : "other") else {
    throw Violation(
      "a transaction had read \(isBehind ? "what another call had written" : "nothing of another call"), and when both had "
        + "returned read(key:) gave \(describe(found as Any)), not what the later of the two had written",
      rule: .t1)
  }
  // An engine that holds up writers for the body has the other call behind it.
  guard isBehind, let updated, let last = try await engine.updatedAt(key: both) else { return }
  try expect(
    last.timeIntervalSince(updated) >= -precisionOfTime,
    "updatedAt of an entry was \(describe(updated)) and, when a transaction had written it after that, \(describe(last))"
  )
  // Without atomic batches readAllEntries() may be the default one, which knows the times only.
  guard context.capabilities.contains(.atomicBatches) else { return }
  let order = try await engine.readAllEntries().map(\.key)
  guard order == [both, first, second] else {
    throw Violation(
      "the keys of readAllEntries() were \(describe(order)), although \(second) was written first by a transaction that "
        + "had read what was written with \(first)", rule: .r6)
  }
}

private func checkOpeningBesideBody(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let keys = keys(4)
  try await engine.write(entries(Array(keys.prefix(2))))
  let isOver = Flag()
  let body = PausedBody(in: engine, milliseconds: 200) { transaction, pause in
    try transaction.remove(key: keys[0])
    try transaction.write(value(for: keys[2]), key: keys[2])
    pause()
    isOver.set()
    try transaction.write(value(for: keys[3]), key: keys[3])
  }
  try await body.begin()
  do {
    if let second = try await context.openUnlessLocked(context.place) {
      let found = try await second.read(key: keys[0])
      if !isOver.isSet {
        try expect(
          found, is: value(for: keys[0]),
          "read(key:) in another engine of what a body had removed and not committed")
      }
      try await context.close(second)
    }
  } catch let violation as Violation {
    throw Violation(violation.description, rule: .c2)
  }
  try await body.end()
  let expected = entries(Array(keys.dropFirst()))
  try await expectStored(expected, absent: [keys[0]], in: engine)
  let reopened = try await context.reopen(engine)
  try await expectStored(expected, absent: [keys[0]], in: reopened)
}

/// Has another transaction change the same while a body takes longer than one would expect.
private func checkLongBody(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let counter = key("counter")
  try await engine.write(data("0"), key: counter)
  // Shorter than the time limit of an engine that reaches a server.
  let milliseconds = context.byLevel(quick: 1_100, standard: 3_000, exhaustive: 5_000)
  let long = PausedBody(in: engine, milliseconds: milliseconds) { transaction, pause in
    let number = try transaction.number(counter)
    pause()
    try transaction.write(data("\(number + 1)"), key: counter)
  }
  try await long.begin()
  var isDone = false
  while !isDone {
    do {
      try await engine.withTransaction { transaction in
        try transaction.write(data("\(try transaction.number(counter) + 1)"), key: counter)
      }
      isDone = true
    } catch let failure as CallFailure
      where (failure.error as? StorageError)?.code == .conflict && !long.hasEnded
    {
      // An engine that has one transaction at a time may give up all others meanwhile (rule T4).
      try await yieldToAllThreads()
    }
  }
  try await long.end()
  try expect(
    try await engine.read(key: counter), is: data("2"),
    "the sum of two additions by transactions, of which one took \(milliseconds) ms,")
}

private func checkDirtyReads(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let (keys, passing) = (keys(3), key("passing"))
  try await engine.write(keys.map { ($0, data("clean")) })
  let dirty = data("dirty")
  let methods = MutexProtected(0)
  let looks = MutexProtected<[Latch]>([])
  let rounds = context.rounds(
    quick: 24, standard: 120, exhaustive: 2_000, of: "bodies that change their minds")
  try await whileRunning {
    for round in rounds {
      do {
        try await engine.withTransaction { transaction in
          for key in keys + [passing] { try transaction.write(dirty, key: key) }
          let latch = Latch()
          looks.withLock { $0.append(latch) }
          // As long as it takes somebody to look, unless readers have to wait for the body.
          _ = latch.wait(for: .milliseconds(20))
          if !round.isMultiple(of: 2) { throw ThrownByBody() }
          for key in keys { try transaction.write(data("clean"), key: key) }
          try transaction.remove(key: passing)
        }
      } catch let failure as CallFailure where failure.error is ThrownByBody {}
    }
  } readers: { reader in
    let waiting = looks.withLock { looks in
      defer { looks = [] }
      return looks
    }
    let method = methods.withLock { next in
      next = (next + 1) % ReadMethod.allCases.count
      return ReadMethod.allCases[next]
    }
    let found = try await method.found(of: keys + [passing], in: engine)
    for latch in waiting { latch.signal() }
    try expect(
      !found.contains(dirty) && found.count == keys.count,
      "\(method.call) found what a body had written and not committed")
  }
}
