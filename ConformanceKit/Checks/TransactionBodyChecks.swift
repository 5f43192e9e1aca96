#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// How bodies end: rules T3 and T4, and O3 for transactions.

extension CheckDefinition {
  @CheckList static var transactionBodyChecks: [CheckDefinition] {
    Check(
      .t3, "transactions.thrown-bodies-change-nothing",
      "after a body throws at any point, entries and times are as before", needs: .transactions
    ) { try await checkThrownBodies($0) }
    Check(
      .t3, "transactions.errors-arrive-as-they-are",
      "withTransaction(_:) throws the error of the body",
      needs: .transactions
    ) { try await checkErrors($0) }
    Check(
      .t3, "transactions.thrown-bodies-spoil-no-others",
      "of concurrent transactions, those that throw change nothing, and all others take effect",
      needs: .transactions
    ) { try await checkCallsBesideThrown($0) }
    Check(
      .t4, "transactions.end-with-their-body",
      "a transaction that is used after its body has returned or thrown throws, and changes nothing",
      needs: .transactions
    ) { try await checkLateUseOfTransactions($0) }
    Check(
      .t4, "transactions.refuse-invalid-keys",
      "every method of a transaction throws invalidKey for an invalid key, and the body can continue",
      needs: .transactions
    ) { try await checkInvalidKeysInTransactions($0) }
    Check(
      .t4, "transactions.give-back-results",
      "withTransaction(_:) returns the result of the last run of the body",
      needs: .transactions
    ) { try await checkResults($0) }
    Check(
      .o3, "transactions.closed", "a closed engine throws closed and runs no body",
      needs: [.persistent, .transactions]
    ) { context in
      let engine = try await context.open()
      try await engine.write(data("v"), key: key("k"))
      try await engine.close()
      let hasRun = Flag()
      try await expectError(.closed, from: "withTransaction(_:) of a closed engine") {
        try await engine.withTransaction { _ in hasRun.set() }
      }
      try expect(!hasRun.isSet, "a closed engine ran the body of a transaction")
    }
  }
}

/// An error that a body throws. It is identified by its reference.
private final class Refusal: Error, Sendable {}

// MARK: - Bodies that throw

private let thrownBodies: [(String, @Sendable (any StorageTransaction) throws -> Void)] = [
  ("at once", { _ in }),
  ("after reads", { _ = try ($0.read(key: keys(4)[0]), $0.keyCount(), $0.scan(.all, limit: nil)) }),
  ("after a write", { try $0.write(data("new"), key: keys(4)[0]) }),
  ("after a write of a new key", { try $0.write(data("new"), key: key("new")) }),
  ("after a removal", { try $0.remove(key: keys(4)[1]) }),
  (
    "after importing an entry and a new one",
    { transaction in
      let past = Date(timeIntervalSince1970: 1_000_000_000)
      for imported in [keys(4)[3], key("new")] {
        try transaction.writeEntry(
          StorageEntry(key: imported, data: data("imported"), createdAt: past, updatedAt: past))
      }
    }
  ),
  ("after removeAll()", { try $0.removeAll() }),
  (
    "after removeAll() and writes",
    { transaction in
      try transaction.removeAll()
      for written in [keys(4)[1], key("new")] { try transaction.write(data("new"), key: written) }
    }
  ),
  (
    "after many changes",
    { transaction in
      for key in keys(40) { try transaction.write(data("new"), key: key) }
      _ = try transaction.keyCount()
      try transaction.remove(key: keys(4)[2])
    }
  ),
]

private func checkThrownBodies(_ context: CheckContext) async throws {
  let engine = try await context.open()
  try await engine.write(entries(keys(4)))
  let before = try await engine.readAllEntries()
  var expected = ExpectedAnswers()
  expected.apply(entries(keys(4)).map { .write($0.data, key: $0.key) })
  for (round, (when, body)) in thrownBodies.enumerated() {
    try await expectThrown(Refusal(), by: engine, when, after: body)
    do {
      try await expected.verify(engine, first: round)
    } catch let violation as Violation {
      throw Violation("after a body that threw \(when), \(violation)")
    }
    try expect(
      try await engine.readAllEntries(), is: before, "readAllEntries() after a body that threw \(when)")
    try expect(try await engine.keyCount(), is: 4, "keyCount() after a body that threw \(when)")
  }
  try await throwAfterMuch(engine, context)
  // An engine may run a limited number of transactions at a time, and bodies that throw may keep their places.
  for _ in 0..<200 { try await expectThrown(Refusal(), by: engine, "at once", after: { _ in }) }
  context.noteProgress()
  try expect(
    try await engine.withTransaction { try $0.keyCount() }, is: 4,
    "keyCount() in a body after 200 bodies that threw")
  guard context.capabilities.contains(.persistent) else { return }
  let reopened = try await context.reopen(engine)
  try await expectStored(entries(keys(4)), absent: [key("new")], in: reopened)
}

/// Has bodies throw after more changes, and more bytes, than an engine may keep in memory until they end.
private func throwAfterMuch(_ engine: EngineUnderTest, _ context: CheckContext) async throws {
  let before = try await engine.readAllEntries()
  let count = try await context.affordableCount(
    1_100, of: "writes of a body that throws", by: wayOfTransactions)
  try await expectThrown(Refusal(), by: engine, "after \(count) writes") { transaction in
    for key in keys(count) { try transaction.write(data("new"), key: key) }
  }
  try expect(
    try await engine.readAllEntries(), is: before,
    "readAllEntries() after a body that threw after \(count) writes")
  context.noteProgress()
  try await expectThrown(Refusal(), by: engine, "after writes of 2 MiB") { transaction in
    for key in keys(4) { try transaction.write(noise(512 << 10), key: key) }
  }
  try expect(
    try await engine.readAllEntries(), is: before,
    "readAllEntries() after a body that threw after writes of 2 MiB")
}

/// Fails unless the transaction throws exactly this error.
private func expectThrown(
  _ refusal: Refusal, by engine: EngineUnderTest, _ when: String,
  after body: @escaping @Sendable (any StorageTransaction) throws -> Void
) async throws {
  do {
    try await engine.withTransaction { transaction in
      try body(transaction)
      throw refusal
    }
  } catch let failure as CallFailure {
    if failure.error as? Refusal === refusal { return }
    throw Violation(
      "a body threw an error of its own \(when), and withTransaction(_:) threw "
        + shortened(String(describing: failure.error)))
  }
  throw Violation("a body threw an error of its own \(when), and withTransaction(_:) returned")
}

/// Includes errors that engines throw themselves, some of them after retrying or checking the outcome.
private let errorsOfBodies: [(name: String, error: any Error)] = {
  let codes: [StorageError.Code] = [
    .io, .closed, .locked, .unsupported, .corrupted, .diskFull, .unavailable, .outcomeUnknown, .conflict,
  ]
  var errors: [(name: String, error: any Error)] = []
  for code in codes {
    errors.append((code.name, StorageError(code, "The body's own.", underlying: ErrorOfBody())))
  }
  errors.append(("CancellationError", CancellationError()))
  return errors
}()

/// Whether the error is the one from ``errorsOfBodies`` that a body threw.
private func isSame(_ error: any Error, _ thrown: any Error) -> Bool {
  guard let thrown = thrown as? StorageError else { return error is CancellationError }
  let error = error as? StorageError
  return error?.code == thrown.code && error?.message == thrown.message
}

private func checkErrors(_ context: CheckContext) async throws {
  let engine = try await context.open()
  for (when, body) in thrownBodies { try await expectThrown(Refusal(), by: engine, when, after: body) }
  for (name, error) in errorsOfBodies {
    do {
      try await engine.withTransaction { transaction in
        try transaction.write(data("v"), key: key("k"))
        throw error
      }
      throw Violation("a body threw \(name), and withTransaction(_:) returned")
    } catch let failure as CallFailure {
      try expect(
        isSame(failure.error, error),
        "a body threw \(name), and withTransaction(_:) threw \(shortened(String(describing: failure.error)))")
    }
  }
  try expect(try await engine.read(key: key("k")), is: nil, "a key that only bodies that threw had written")
}

private func checkCallsBesideThrown(_ context: CheckContext) async throws {
  // Changes by another engine on the place must stay as well.
  let engines = try await context.openTwiceIfPossible()
  let engine = engines[0]
  let tasks = 12
  let rounds = context.rounds(
    quick: 60, standard: 300, exhaustive: 6_000, of: "transactions of which a third throw")
  let written =
    try await gather(0..<tasks) { task in
      var written: [CacheKey] = []
      let engine = engines[task / 2 % engines.count]
      for round in rounds.share(of: task, among: tasks) {
        let own = key("\(round)")
        if round % 3 == 1 {
          try await expectThrown(Refusal(), by: engine, "beside others") { transaction in
            try transaction.write(data("thrown"), key: own)
            try transaction.write(data("thrown"), key: key("common"))
            if round % 2 == 0 { try transaction.removeAll() }
          }
        } else {
          try await engine.withTransaction { transaction in
            try transaction.write(data("kept"), key: own)
            try transaction.write(data("kept"), key: key("common"))
          }
          written.append(own)
        }
      }
      return written
    }.flatMap { $0 } + [key("common")]
  try await expectStored(written.map { ($0, data("kept")) }, in: engine)
  try expect(try await engine.allKeys(), areInAnyOrder: written, "allKeys()")
  try await changeBehindThrown(engine)
}

/// Makes other calls while a body runs that throws: an engine may commit them together with it.
private func changeBehindThrown(_ engine: EngineUnderTest) async throws {
  let methods = ChangeMethod.all([]).filter { $0 != .removeAll }
  let changed = methods.map { key("behind a body that throws, \($0.rawValue)") }
  try await engine.write(
    zip(methods, changed).filter { $0.0.removes }.map { (key: $0.1, data: data("to be removed")) })
  let body = PausedBody(in: engine, milliseconds: 60) { transaction, pause in
    try transaction.write(data("thrown"), key: key("of a body that throws"))
    pause()
    throw ThrownByBody()
  }
  try await body.begin()
  try await gather(0..<methods.count) { number in
    try await methods[number].perform([(changed[number], data("v"))], in: engine)
  }
  do {
    try await body.end()
  } catch let failure as CallFailure where failure.error is ThrownByBody {}
  for (method, key) in zip(methods, changed) {
    try expect(
      try await engine.read(key: key), is: method.removes ? nil : data("v"),
      "read(key:) of a key after \(method.call) that was called while a body ran that threw")
  }
}

// MARK: - Results

private func checkResults(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let tasks = 8
  let numbers = key("numbers")
  let rounds = context.rounds(
    quick: 80, standard: 400, exhaustive: 8_000, of: "transactions that return something")
  // Each body returns the value that it stored. No other body has the same value.
  let results = try await gather(0..<tasks) { task in
    var results: [Int] = []
    for _ in rounds.share(of: task, among: tasks) {
      results.append(
        try await engine.withTransaction { transaction in
          let next = try transaction.number(numbers) + 1
          try transaction.write(data("\(next)"), key: numbers)
          try transaction.write(data("\(task)"), key: key("of \(next)"))
          return next
        })
    }
    for number in results {
      try expect(
        try await engine.read(key: key("of \(number)")), is: data("\(task)"),
        "what a transaction had returned and stored")
    }
    return results
  }.flatMap { $0 }
  try expect(results.sorted(), is: Array(1...results.count), "what transactions had returned, sorted,")
  try await returnNil(engine)
}

/// Has a body return nil, which an engine may mistake for an aborted transaction.
private func returnNil(_ engine: EngineUnderTest) async throws {
  let (absent, beside) = (key("absent"), key("beside nil"))
  let found: Data? = try await engine.withTransaction { transaction in
    try transaction.write(data("v"), key: beside)
    return try transaction.read(key: absent)
  }
  try expect(found, is: nil, "what a transaction had returned whose body returned nil")
  try expect(
    try await engine.read(key: beside), is: data("v"), "what a body had written that returned nil")
}
