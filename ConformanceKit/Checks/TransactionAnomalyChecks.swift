#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Isolation of transactions: rule T1.

extension CheckDefinition {
  @CheckList static var transactionAnomalyChecks: [CheckDefinition] {
    Check(
      .t1, "transactions.no-write-skew",
      "of two concurrent transactions that read two keys and each write one of them, the second sees the "
        + "first",
      needs: .transactions
    ) { try await checkWriteSkew($0) }
    for (name, count) in countsOfEntries {
      Check(
        .t1, "transactions.no-phantoms-in-\(name)",
        "of concurrent transactions that each write an entry only if \(name) finds none, or only one, "
          + "exactly one does",
        needs: .transactions
      ) { try await checkPhantoms($0, name, count) }
    }
    Check(
      .t1, "transactions.read-one-snapshot",
      "all reads of a body return one snapshot while transactions and batches transfer amounts",
      needs: .transactions
    ) { try await checkReadSkew($0) }
    Check(
      .t1, "transactions.show-nothing-early",
      "writes of a body are not visible to others before it has returned",
      needs: .transactions
    ) { try await checkDirtyReads($0) }
  }
}

// MARK: - Phantoms

/// Methods that count the taken seats. A count may stop at the limit.
private let countsOfEntries: [(String, @Sendable (any StorageTransaction, _ limit: Int) throws -> Int)] = [
  ("scan", { try $0.scan(.prefix("seat/"), limit: $1).count }),
  ("scan-of-all", { transaction, _ in try transaction.scan(.all, limit: nil).count }),
  (
    "scan-between-keys",
    { transaction, _ in
      try transaction.scan(KeyRange(after: key("seat"), upTo: key("seat0")), limit: nil).count
    }
  ),
  ("keyCount", { transaction, _ in try transaction.keyCount() }),
  ("allKeys", { transaction, _ in try transaction.allKeys().count }),
  ("read", { transaction, _ in try takenSeats(transaction) }),
  ("readMany", { transaction, _ in try transaction.read(keys: seats).count }),
  ("keyExists", { transaction, _ in try seats.count { try transaction.keyExists($0) } }),
]

private let seats = (0..<7).map { key("seat/\($0)") }

/// The number of taken seats, read one by one.
private func takenSeats(_ transaction: any StorageTransaction) throws -> Int {
  try seats.count { try transaction.read(key: $0) != nil }
}

private func checkPhantoms(
  _ context: CheckContext, _ name: String,
  _ count: @escaping @Sendable (any StorageTransaction, Int) throws -> Int
) async throws {
  // In half of the rounds, the transactions are those of two engines on the place.
  let engines = try await context.openTwiceIfPossible()
  let engine = engines[0]
  for round in context.rounds(quick: 20, standard: 100, exhaustive: 3_000, of: "rounds of one seat") {
    try await engine.removeAllData()
    // A seat in the middle, so that others are before and after the one that is found.
    let taken = round % 2
    if taken == 1 { try await engine.write(data("taken"), key: seats[seats.count / 2]) }
    let barrier = round < 6 ? BodyBarrier(of: seats.count - 1) : nil
    try await gather(seats.indices.dropLast()) { task in
      let seat = seats[task < seats.count / 2 ? task : task + 1]
      let engine = engines[round % 4 < 2 ? 0 : task % engines.count]
      try await engine.withTransaction { transaction in
        let isFree = try count(transaction, taken + 1) == taken
        barrier?.arrive()
        if isFree { try transaction.write(data("taken"), key: seat) }
      }
    }
    try expect(
      try await engine.allKeys().count, is: taken + 1,
      "the number of entries after transactions that each write one if \(name) finds \(taken),")
  }
  try await countTwice(engine, name, isFirst: true, count)
  try await countTwice(engine, name, isFirst: false, count)
  try await takeAfterOthers(engine, name, count)
  try await leaveTheLast(engine, name, count)
}

/// Has one body count the seats by a method before others take some, and by `read(key:)` after that, or in reverse
/// order.
private func countTwice(
  _ engine: EngineUnderTest, _ name: String, isFirst: Bool,
  _ count: @escaping @Sendable (any StorageTransaction, Int) throws -> Int
) async throws {
  try await engine.removeAllData()
  let counts = MutexProtected((before: 0, after: 0))
  try await engine.withTransaction {
    try isFirst ? count($0, seats.count) : takenSeats($0)
  } meanwhile: {
    try await engine.write(entries(Array(seats.prefix(2))))
  } then: { transaction, before in
    let after = try isFirst ? takenSeats(transaction) : count(transaction, seats.count)
    counts.withLock { $0 = (before, after) }
  }
  let (before, after) = counts.withLock { $0 }
  try expect(
    after, is: before,
    "the number of entries that a body found by \(isFirst ? "read" : name), after \(isFirst ? name : "read") had found "
      + "\(before) and others had written two,")
}

/// Has a body take a seat after others have taken seats that it counted as free. The run may be aborted.
///
/// If the seat is still free when the writes of the others have been acknowledged, the transaction comes after them,
/// and must count them.
private func takeAfterOthers(
  _ engine: EngineUnderTest, _ name: String,
  _ count: @escaping @Sendable (any StorageTransaction, Int) throws -> Int
) async throws {
  try await engine.removeAllData()
  let isAfterOthers = try await engine.withTransaction {
    try count($0, seats.count)
  } meanwhile: {
    try await engine.write(entries(Array(seats.prefix(2))))
    return try await engine.read(key: seats[6]) == nil
  } then: { transaction, found in
    try transaction.write(data("\(found)"), key: seats[6])
  }
  if isAfterOthers {
    try expect(
      try await engine.read(key: seats[6]), is: data("2"),
      "the number of entries that a body found by \(name) and wrote, after two others had been written and nothing of the "
        + "body could be read,")
  }
  // Reveals counts or index entries that remain from an aborted run.
  try await expectAllWaysAgree(in: engine)
}

/// Has two bodies each give up a seat if they count two. The transaction that comes second counts one, and keeps it.
private func leaveTheLast(
  _ engine: EngineUnderTest, _ name: String,
  _ count: @escaping @Sendable (any StorageTransaction, Int) throws -> Int
) async throws {
  try await engine.removeAllData()
  let (one, another) = (seats[1], seats[4])
  try await engine.write(entries([one, another]))
  try await engine.withTransaction {
    try count($0, seats.count)
  } meanwhile: {
    try await engine.withTransaction { transaction in
      let found = try count(transaction, seats.count)
      if found == 2 { try transaction.remove(key: one) }
    }
  } then: { transaction, found in
    if found == 2 { try transaction.remove(key: another) }
  }
  try expect(
    try await engine.allKeys().count, is: 1,
    "the number of entries after two transactions that each remove one of two if \(name) finds both")
}

// MARK: - Read skew and dirty reads

private func checkReadSkew(_ context: CheckContext) async throws {
  // Another engine on the place makes some of the transfers.
  let engines = try await context.openTwiceIfPossible()
  let engine = engines[0]
  let accounts = Accounts(count: 10, balance: 100)
  try await engine.write(accounts.opening)
  for round in 0..<3 {
    try await engine.withTransaction {
      try $0.read(key: accounts.keys[0])
    } meanwhile: {
      try await engines[round % engines.count].withTransaction {
        try accounts.transfer(1 + round, from: accounts.keys[0], to: accounts.keys[1], in: $0)
      }
    } then: { transaction, first in
      let others = try accounts.keys.dropFirst().map { try transaction.read(key: $0) }
      try accounts.check(([first] + others).compactMap { $0 }, "the reads of one body")
    }
  }
  let showsSnapshot = context.capabilities.contains(.snapshotReads)
  let rounds = context.rounds(quick: 120, standard: 600, exhaustive: 20_000, of: "transfers")
  try await whileRunning {
    try await gather(0..<4) { task in
      for round in rounds.share(of: task, among: 4) {
        let (from, to) = accounts.pair(round)
        try await engine.withTransaction { try accounts.transfer(1 + round % 7, from: from, to: to, in: $0) }
      }
    }
  } readers: { reader in
    if reader > 1 || !showsSnapshot {
      try await engine.withTransaction { try accounts.check(in: $0, reader) }
    } else {
      try accounts.check(try await engine.read(keys: accounts.keys), "read(keys:)")
    }
  }
  try accounts.check(try await engine.read(keys: accounts.keys), "read(keys:) after all transfers")
}

private func checkDirtyReads(_ context: CheckContext) async throws {
  // Another engine on the place must not see the changes either.
  let engines = try await context.openTwiceIfPossible()
  let engine = engines[0]
  let (keys, passing) = (keys(3), key("passing"))
  try await engine.write(keys.map { ($0, data("clean")) })
  let dirty = data("dirty")
  let methods = MutexProtected(0)
  let looks = MutexProtected<[Latch]>([])
  let rounds = context.rounds(
    quick: 24, standard: 120, exhaustive: 2_000, of: "bodies that undo their writes")
  try await whileRunning {
    for round in rounds {
      do {
        try await engine.withTransaction { transaction in
          for key in keys + [passing] { try transaction.write(dirty, key: key) }
          let latch = Latch()
          looks.withLock { $0.append(latch) }
          // Waits until another task has read, unless readers have to wait for the body.
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
    var answers: [[Data?]] = []
    for engine in engines { answers.append(try await method.found(of: keys + [passing], in: engine)) }
    for latch in waiting { latch.signal() }
    for (number, found) in answers.enumerated() {
      try expect(
        !found.contains(dirty) && found.count == keys.count,
        "\(method.call)\(number == 0 ? "" : " of another engine") returned an uncommitted write of a body")
    }
  }
}
