#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Changes that other calls make while a body runs: rule T1.

/// Has a body read a number, another call store a new number or remove it, and the body write a result computed from
/// the first.
///
/// - Parameter writer: The engine that makes the other call: the same one, or another one on its place.
func changeBesideBody(
  _ method: ChangeMethod, _ engine: EngineUnderTest, by writer: EngineUnderTest
) async throws {
  let counter = key("counter beside a body")
  try await engine.write(data("1000"), key: counter)
  try await engine.withTransaction {
    try $0.number(counter)
  } meanwhile: {
    try await method.perform([(counter, data("2000"))], in: writer)
  } then: { transaction, number in
    try transaction.write(data("\(number + 1)"), key: counter)
  }
  let found = try await engine.read(key: counter)
  // Either of the two may come first.
  let allowed: [Data?] = method.removes ? [nil, data("1")] : [data("2000"), data("2001")]
  try expect(
    allowed.contains(found),
    "read(key:) of a number was \(describe(found as Any)) after a transaction had added one to it and \(method.call) had "
      + (method.removes ? "removed it" : "stored 2000") + " meanwhile")
}

/// Has a body read a number, and others store a new number as one of many changes, of which an engine may remember only some: as an entry
/// of a batch, and before other writes. Checks nothing if others have to wait for the body.
func changeAmongMany(
  _ context: CheckContext, _ engine: EngineUnderTest, by writer: EngineUnderTest
) async throws {
  let counter = key("counter among many")
  let others = keys(1_000, prefix: "beside the counter/")
  let count = context.byLevel(quick: 300, standard: 1_500, exhaustive: 70_000)
  let changes: [(what: String, perform: () async throws -> Void)] = [
    (
      "a batch of \(others.count + 1) entries had stored 2000 as its last one",
      { try await writer.write((others + [counter]).map { ($0, data("2000")) }) }
    ),
    (
      "a write before \(count) others had stored 2000",
      {
        try await writer.write(data("2000"), key: counter)
        for number in 0..<count {
          context.noteProgress()
          try await writer.write(data("\(number)"), key: others[number % others.count])
        }
      }
    ),
  ]
  for change in changes {
    var isChanged = false
    try await engine.write(data("1000"), key: counter)
    try await engine.withTransaction {
      try $0.number(counter)
    } meanwhile: {
      try await writer.write(data("v"), key: others[0])
    } andThen: {
      try await change.perform()
      isChanged = true
    } then: { transaction, number in
      try transaction.write(data("\(number + 1)"), key: counter)
    }
    guard isChanged else { return }
    let found = try await engine.read(key: counter)
    try expect(
      [data("2000"), data("2001")].contains(found),
      "read(key:) of a number was \(describe(found as Any)) after a transaction had added one to it and \(change.what) meanwhile"
    )
  }
}

/// Has a body read a number, others store a new number meanwhile, and a second body read that. Checks nothing if others have to wait for
/// the first body.
func readBesideBody(_ engine: EngineUnderTest, by writer: EngineUnderTest) async throws {
  let (counter, another) = (key("read by two bodies"), key("written beside two bodies"))
  try await engine.write(data("1000"), key: counter)
  var found: Int?
  try await engine.withTransaction {
    try $0.number(counter)
  } meanwhile: {
    try await writer.write(data("v"), key: another)
  } andThen: {
    try await writer.write(data("2000"), key: counter)
    found = try await engine.withTransaction { try $0.number(counter) }
  } then: { transaction, number in
    try transaction.write(data("\(number)"), key: another)
  }
  guard let found, found != 2_000 else { return }
  throw Violation(
    "a body read \(found), although 2000 had been stored before it began; another body, which had begun before that, was still running"
  )
}

/// What a body does with a number that it has read.
let decisions: [(String, @Sendable (any StorageTransaction, CacheKey) throws -> Void)] = [
  ("removed it", { try $0.remove(key: $1) }),
  ("removed everything", { transaction, _ in try transaction.removeAll() }),
  (
    "imported another",
    { transaction, key in
      let past = Date(timeIntervalSince1970: 1_500_000_000)
      try transaction.writeEntry(
        StorageEntry(key: key, data: data("1"), createdAt: past, updatedAt: past))
    }
  ),
]

/// Has a body change a number only if it is the first one, and another call store a second number meanwhile. Whichever
/// comes first, the second number is there in the end.
func decideBesideWrite(
  _ what: String, _ decide: @escaping @Sendable (any StorageTransaction, CacheKey) throws -> Void,
  _ engine: EngineUnderTest
) async throws {
  let counter = key("decided by a body")
  try await engine.write(data("1000"), key: counter)
  try await engine.withTransaction {
    try $0.number(counter)
  } meanwhile: {
    try await engine.write(data("2000"), key: counter)
  } then: { transaction, number in
    if number == 1_000 { try decide(transaction, counter) }
  }
  try expect(
    try await engine.read(key: counter), is: data("2000"),
    "read(key:) of a number, when a transaction had \(what) if it was 1000, and 2000 had been stored meanwhile,"
  )
}

/// Has a body remove everything, and a batch overwrite one entry and add another before the body ends. The removal
/// comes before the batch, so that both entries exist, or after it.
func writeBesideRemoval(_ engine: EngineUnderTest) async throws {
  let both = keys(2, prefix: "beside a removal/")
  for _ in 0..<3 {
    try await engine.remove(key: both[1])
    try await engine.write(data("old"), key: both[0])
    try await engine.withTransaction {
      try $0.removeAll()
    } meanwhile: {
      try await engine.write(both.map { ($0, data("new")) })
    } then: { transaction, _ in
      try transaction.write(data("v"), key: key("removed everything"))
    }
    let found = try await engine.readDataAndKeys(keys: both)
    try expect(
      found.count != 1 && found.allSatisfy { $0.data == data("new") },
      "of a batch of two entries that was written while a body removed everything, \(describe(found.map(\.key))) was left"
    )
  }
}

/// Has other calls change what bodies read. Some engines only check what a body writes.
///
/// - Parameter writers: The engine and, if there is one, another one on its place.
func changeWhatBodiesRead(
  _ context: CheckContext, _ engine: EngineUnderTest, by writers: [EngineUnderTest]
) async throws {
  for (number, writer) in writers.enumerated() {
    var methods = ChangeMethod.allCases.filter { $0 != .transaction }
    // An engine that runs one body at a time takes 50 ms for each of them.
    if context.budget.level == .quick { methods = number == 0 ? [.write, .remove] : [.write] }
    for method in methods {
      context.noteProgress()
      try await changeWhatABodyReads(method, engine, by: writer)
    }
  }
}

/// Has a body copy the value of one key to another, and another call change the first key meanwhile. If no write of the
/// body can be read when that call has returned, the transaction comes after the call, and must have read the new
/// value.
private func changeWhatABodyReads(
  _ method: ChangeMethod, _ engine: EngineUnderTest, by writer: EngineUnderTest
) async throws {
  let (source, copy) = (key("read by a body"), key("written by a body"))
  try await engine.remove(key: copy)
  try await engine.write(data("1000"), key: source)
  let isAfterCall = try await engine.withTransaction {
    try $0.number(source)
  } meanwhile: {
    try await method.perform([(source, data("2000"))], in: writer)
    return try await engine.read(key: copy) == nil
  } then: { transaction, number in
    try transaction.write(data("copy of \(number)"), key: copy)
  }
  guard isAfterCall else { return }
  let found = try await engine.read(key: copy)
  let isRight = found == data(method.removes ? "copy of 0" : "copy of 2000")
  // removeAllData() may have removed the copy.
  try expect(
    isRight || method == .removeAll && found == nil,
    "read(key:) of what a body had written was \(describe(found as Any)), although \(method.call) had "
      + (method.removes ? "removed" : "stored 2000 under")
      + " the key that it copies, and had returned, before anything of the body could be read")
}
