#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Long bodies, and concurrent calls: rules T1 and W2.

extension CheckDefinition {
  @CheckList static var longBodyChecks: [CheckDefinition] {
    Check(
      .t1, "transactions.of-long-bodies",
      "a body that takes a second or more does not undo what another transaction has changed meanwhile",
      needs: .transactions
    ) { try await checkLongBody($0) }
    Check(
      .w2, "transactions.after-others",
      "writes of a transaction after changes by others have later times and come later in the order",
      needs: .transactions
    ) { try await checkTimesBehindOthers($0) }
    Check(
      .w2, "transactions.before-another-engine",
      "writes of another engine on the place after a body have no earlier times than the body's",
      needs: [.transactions, .persistent]
    ) { try await checkTimesBehindBody($0) }
    Check(
      .t1, "transactions.beside-openings",
      "a transaction completes although another engine is opened on the place while its body runs",
      needs: [.transactions, .persistent]
    ) { try await checkEnginesBesideBody($0, .opened) }
    Check(
      .t1, "transactions.beside-closings",
      "a transaction completes although another engine on the place is closed while its body runs",
      needs: [.transactions, .persistent]
    ) { try await checkEnginesBesideBody($0, .closed) }
  }
}

/// Changes the same entry as a long body and, like the body, creates a new one.
private func checkTimesBehindOthers(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let (both, first, second) = (key("both"), key("new, z"), key("new, a"))
  try await engine.write(data("0"), key: both)
  let seen = MutexProtected<Data?>(nil)
  let body = PausedBody(in: engine, milliseconds: 150) { transaction, pause in
    pause()
    // The last run counts. The value that it read shows which of the two came first.
    let found = try transaction.read(key: both)
    seen.withLock { $0 = found }
    // So that their times differ.
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
        + "returned, read(key:) returned \(describe(found as Any)), not what the later of the two had written",
      rule: .t1)
  }
  // Otherwise the engine made the other call wait for the body.
  guard isBehind, let updated, let last = try await engine.updatedAt(key: both) else { return }
  try expect(
    last.timeIntervalSince(updated) >= -precisionOfTime,
    "updatedAt of an entry was \(describe(updated)) and, when a transaction had written it after that, \(describe(last))"
  )
  // Without atomic batches an engine may use the default readAllEntries(), which only sorts by times.
  guard context.capabilities.contains(.atomicBatches) else { return }
  let order = try await engine.readAllEntries().map(\.key)
  guard order == [both, first, second] else {
    throw Violation(
      "the keys of readAllEntries() were \(describe(order)), although \(second) was written first by a transaction that "
        + "had read what was written with \(first)", rule: .r6)
  }
}

/// Creates an entry at the end of a body, and writes it with another engine, which may have to wait for the body.
private func checkTimesBehindBody(_ context: CheckContext) async throws {
  let engine = try await context.open()
  guard let other = try await openedBesideBody(context) else { return }
  let made = key("made by a body")
  let body = PausedBody(in: engine, milliseconds: 100) { transaction, pause in
    pause()
    try transaction.write(data("body"), key: made)
  }
  try await body.begin()
  do {
    try await other.write(data("other"), key: made)
  } catch let failure as CallFailure where (failure.error as? StorageError)?.code == .conflict {
    // The engine may abort the write.
  }
  try await body.end()
  try await context.close(other)
  guard let created = try await engine.createdAt(key: made),
    let updated = try await engine.updatedAt(key: made)
  else { throw Violation("an entry had no times that a body and another engine had written") }
  try expect(
    created <= updated || isSame(created, updated),
    "createdAt of an entry that a body had made was \(describe(created)), and updatedAt \(describe(updated)) when another "
      + "engine had written it")
}

private func openedBesideBody(_ context: CheckContext) async throws -> EngineUnderTest? {
  do {
    return try await context.openUnlessLocked(context.place)
  } catch let violation as Violation {
    throw Violation(violation.description, rule: .c2)
  }
}

/// What another engine on the place does while a body runs.
private enum Neighbor { case opened, closed }

private func checkEnginesBesideBody(_ context: CheckContext, _ neighbor: Neighbor) async throws {
  let engine = try await context.open()
  var earlier: EngineUnderTest?
  if neighbor == .closed {
    guard let second = try await context.openUnlessLocked(context.place) else { return }
    _ = try await second.keyCount()
    earlier = second
  }
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
  switch neighbor {
  case .opened:
    guard let second = try await openedBesideBody(context) else { break }
    let found = try await second.read(key: keys[0])
    if !isOver.isSet {
      try expect(
        found, is: value(for: keys[0]),
        "read(key:) in another engine of what a body had removed and not committed")
    }
    try await context.close(second)
  case .closed:
    if let earlier { try await context.close(earlier) }
  }
  try await body.end()
  let expected = entries(Array(keys.dropFirst()))
  try await expectStored(expected, absent: [keys[0]], in: engine)
  let reopened = try await context.reopen(engine)
  try await expectStored(expected, absent: [keys[0]], in: reopened)
}

/// Has another transaction change the same key while a body takes unusually long.
private func checkLongBody(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let counter = key("counter")
  try await engine.write(data("0"), key: counter)
  // Shorter than the timeout of an engine that connects to a server.
  let milliseconds = context.byLevel(quick: 1_100, standard: 3_000, exhaustive: 5_000)
  let long = PausedBody(in: engine, milliseconds: milliseconds) { transaction, pause in
    let number = try transaction.number(counter)
    pause()
    try transaction.write(data("\(number + 1)"), key: counter)
  }
  try await long.begin()
  // An engine that runs one transaction at a time may abort the others meanwhile (rule T4). They are retried.
  try await engine.withTransaction { transaction in
    try transaction.write(data("\(try transaction.number(counter) + 1)"), key: counter)
  }
  try await long.end()
  try expect(
    try await engine.read(key: counter), is: data("2"),
    "the sum of two additions by transactions, of which one took \(milliseconds) ms,")
}
