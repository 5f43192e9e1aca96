#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Transactions take effect one after the other: rule T1. Each check is about one anomaly that weaker isolation allows
// (Berenson and others, A critique of ANSI SQL isolation levels, 1995).

extension CheckDefinition {
  @CheckList static var transactionChecks: [CheckDefinition] {
    Check(
      .t1, "transactions.lose-no-update", "a counter that transactions of many tasks increment has their sum",
      needs: .transactions
    ) { context in
      let engine = try await context.open()
      try await checkIncrements(context, [engine])
    }
    Check(
      .t1, "transactions.of-two-engines-lose-no-update",
      "a counter that transactions of two engines on one place increment has their sum, unless the second opening throws "
        + "locked",
      needs: [.persistent, .transactions]
    ) { context in
      let first = try await context.open()
      do {
        let second = try await context.open()
        try await checkIncrements(context, [first, second])
      } catch let failure as CallFailure where (failure.error as? StorageError)?.code == .locked {}
    }
    Check(
      .t1, "transactions.undo-no-other-write",
      "what a single call or a batch writes is not overwritten by a transaction that has read before it",
      needs: .transactions
    ) { try await checkOtherWrites($0) }
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
      .t1, "transactions.that-write-nothing",
      "a transaction that writes nothing changes neither entries nor times, and no file grows by it",
      needs: .transactions
    ) { try await checkReadOnly($0) }
  }
}

extension StorageTransaction {
  /// The number under the key; 0 if it is absent.
  func number(_ key: CacheKey) throws -> Int { try ConformanceKit.number(of: read(key: key), key) }
}

/// The number that a value is; 0 if there is none.
func number(of value: Data?, _ key: CacheKey) throws -> Int {
  guard let value else { return 0 }
  guard let number = Int(String(decoding: value, as: UTF8.self)) else {
    throw Violation("the value of \(key) was \(describe(value)), which nobody has written", rule: .w1)
  }
  return number
}

// MARK: - Lost updates

private func checkIncrements(_ context: CheckContext, _ engines: [EngineUnderTest]) async throws {
  let tasks = 16
  let rounds = context.rounds(quick: 160, standard: 800, exhaustive: 20_000, of: "increments")
  let counter = key("counter")
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
    try expect(sum, is: counts.reduce(0, +), "the counter that \(tasks) tasks had incremented")
  }
}

private func checkOtherWrites(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let counter = key("counter")
  // Nobody increments that often between two writes.
  let step = 1_000_000
  let rounds = context.rounds(quick: 60, standard: 300, exhaustive: 5_000, of: "writes beside transactions")
  try await whileRunning {
    for round in rounds {
      let written = (round + 1) * step
      let value = data("\(written)")
      switch round % 3 {
      case 0: try await engine.write(value, key: counter)
      case 1: try await engine.write([(counter, value), (key("another"), value)])
      default: try await engine.apply([.remove(key: counter), .write(value, key: counter)])
      }
      let found = try number(of: try await engine.read(key: counter), counter)
      try expect(
        found >= written,
        "a key into which \(written) had been written, and which only grows, was \(found) after that: a transaction had "
          + "overwritten it")
    }
  } readers: { _ in
    try await engine.withTransaction { transaction in
      try transaction.write(data("\(try transaction.number(counter) + 1)"), key: counter)
    }
  }
}

// MARK: - Write skew and phantoms

private func checkWriteSkew(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let onCall = [key("on call/one"), key("on call/two")]
  for _ in context.rounds(quick: 30, standard: 150, exhaustive: 5_000, of: "rounds of two keys") {
    try await engine.write(onCall.map { ($0, data("1")) })
    try await gather(0..<4) { task in
      try await engine.withTransaction { transaction in
        let sum = try onCall.reduce(0) { try $0 + transaction.number($1) }
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
]

private func checkPhantoms(
  _ context: CheckContext, _ name: String,
  _ isEmpty: @escaping @Sendable (any StorageTransaction) throws -> Bool
) async throws {
  let engine = try await context.open()
  for _ in context.rounds(quick: 20, standard: 100, exhaustive: 3_000, of: "rounds of one seat") {
    try await engine.removeAllData()
    try await gather(0..<6) { task in
      try await engine.withTransaction { transaction in
        if try isEmpty(transaction) { try transaction.write(data("taken"), key: key("seat/\(task)")) }
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

private func checkDirtyReads(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let keys = keys(3)
  try await engine.write(keys.map { ($0, data("clean")) })
  let dirty = data("dirty")
  let looks = MutexProtected<[Latch]>([])
  let rounds = context.rounds(
    quick: 24, standard: 120, exhaustive: 2_000, of: "bodies that change their minds")
  try await whileRunning {
    for round in rounds {
      do {
        try await engine.withTransaction { transaction in
          for key in keys { try transaction.write(dirty, key: key) }
          let latch = Latch()
          looks.withLock { $0.append(latch) }
          // As long as it takes somebody to look, unless readers have to wait for the body.
          _ = latch.wait(for: .milliseconds(20))
          if !round.isMultiple(of: 2) { throw ChangedItsMind() }
          for key in keys { try transaction.write(data("clean"), key: key) }
        }
      } catch let failure as CallFailure where failure.error is ChangedItsMind {}
    }
  } readers: { reader in
    let waiting = looks.withLock { looks in
      defer { looks = [] }
      return looks
    }
    let found: [Data] =
      switch reader {
      case 0: try await engine.read(keys: keys)
      case 1: try await engine.readAllData()
      default: [try await engine.read(key: keys[reader % 3])].compactMap { $0 }
      }
    for latch in waiting { latch.signal() }
    try expect(!found.contains(dirty), "a reader found what a body had written and not committed")
  }
}

private struct ChangedItsMind: Error {}

// MARK: - Reading only

private func checkReadOnly(_ context: CheckContext) async throws {
  let engine = try await context.open()
  try await engine.write(entries(keys(8)))
  func settle() async throws {
    try await engine.withTransaction { _ in }
    try await engine.withTransaction { _ = try $0.keyCount() }
  }
  try await settle()
  let before = try await engine.readAllEntries()
  let sizes = try DirectoryContents(of: context.place).files.mapValues { $0?.count }
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
  let grown = try DirectoryContents(of: context.place).files.filter { path, data in
    data?.count ?? 0 > (sizes[path] ?? 0) ?? 0
  }
  try expect(
    grown.isEmpty, "after 100 transactions that wrote nothing \(describe(grown.keys.sorted())) had grown")
}
