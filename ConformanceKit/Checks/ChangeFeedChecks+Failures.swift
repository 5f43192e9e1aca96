#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Changes after calls that failed or were cancelled, and slow subscribers: rule X1.

func checkChangesAfterFailures(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let subscriber = try await ChangeSubscriber(to: engine, context)
  let invalid = [key(""), key(String(repeating: "k", count: 512))]
  let methods = ChangeMethod.writing(context.capabilities)
  for round in 0..<30 {
    switch round % 6 {
    case 0: try await expectThrows { try await engine.write(data("v"), key: invalid[0]) }
    case 1:
      try await expectThrows { try await engine.write([(key("a"), data("v")), (invalid[1], data("v"))]) }
    case 2:
      try await expectThrows { try await engine.apply([.remove(key: key("a")), .remove(key: invalid[0])]) }
    case 3: try await expectThrows { try await engine.remove(keys: [key("a"), invalid[1]]) }
    case 4 where context.capabilities.contains(.transactions):
      try await expectThrows {
        try await engine.withTransaction { transaction in
          try transaction.write(data("\(round)"), key: key("a"))
          throw ThrownByBody()
        }
      }
    default:
      let task = Task { @concurrent in
        withUnsafeCurrentTask { $0?.cancel() }
        try await engine.write(data("v"), key: key("cancelled \(round)"))
      }
      // Rule C4 covers what a cancelled call may throw.
      _ = await task.result
    }
    let next = key("after \(round)")
    // Each kind of failure is followed by each method, which changes the keys of the refused call.
    let (method, changed) = (methods[(round + round / 6) % methods.count], [key("a"), next])
    try await method.perform(changed.map { ($0, data("v")) }, in: engine)
    try await subscriber.expectCovered(
      changed, "\(method.call) after a call that had thrown or been cancelled")
  }
  if context.capabilities.contains(.transactions) { try await goOnAfterRefusal(engine, subscriber) }
  for method in methods { try await checkCancelled(method, engine, subscriber, context) }
}

/// Has a body go on after a write that the transaction has refused.
private func goOnAfterRefusal(_ engine: EngineUnderTest, _ subscriber: ChangeSubscriber) async throws {
  let both = keys(2, prefix: "around a refusal/")
  try await engine.withTransaction { transaction in
    try transaction.write(data("v"), key: both[0])
    // Rule T4 covers which error it throws.
    do { try transaction.write(data("v"), key: key("")) } catch is StorageError {}
    try transaction.write(data("v"), key: both[1])
  }
  try await subscriber.expectCovered(both, "a transaction whose body went on after a write that was refused")
}

/// Cancels calls of the method, later and later. Those that return must be covered.
private func checkCancelled(
  _ method: ChangeMethod, _ engine: EngineUnderTest, _ subscriber: ChangeSubscriber, _ context: CheckContext
) async throws {
  let end = try await turns {
    let own = keys(2, prefix: "\(method.rawValue), not cancelled/")
    try await method.perform(own.map { ($0, data("v")) }, in: engine)
  }
  for step in 0..<8 {
    context.noteProgress()
    let own = keys(2, prefix: "\(method.rawValue), cancelled \(step)/")
    let result = await cancelled(after: end * step / 8) {
      try await method.perform(own.map { ($0, data("v")) }, in: engine)
    }
    guard case .success = result else { continue }
    try await subscriber.expectCovered(own, "\(method.call) that returned although its task was cancelled")
  }
}

private func expectThrows(_ call: () async throws -> Void) async throws {
  do { try await call() } catch { return }
  throw Violation("a call that should have thrown returned", rule: .k1)
}

func checkChangesForSlowSubscriber(_ context: CheckContext) async throws {
  let engine = try await context.open()
  try await checkUnreadRemovals(engine, context)
  let slow = try await ChangeSubscriber(to: engine, context)
  let fast = try await ChangeSubscriber(to: engine, context)
  var all: [CacheKey] = []
  for round in context.rounds(quick: 60, standard: 300, exhaustive: 3_000, of: "changes") {
    let prefix = "round \(round)/"
    let some = keys(round % 3 == 0 ? 50 : 1, prefix: prefix)
    try await engine.write(entries(some))
    try await fast.expectCovered(some, "a write beside a subscriber that reads nothing")
    all += some
  }
  try await slow.expectCovered(all, "what was written while the subscriber read nothing")
  // One change of one key, and very many of another.
  let slower = try await ChangeSubscriber(to: engine, context)
  let (early, busy) = (key("early"), key("busy"))
  try await engine.write(data("v"), key: early)
  var count = 0
  for number in context.rounds(quick: 1_100, standard: 4_200, exhaustive: 70_000, of: "changes of one key") {
    try await engine.write(data("\(number)"), key: busy)
    count += 1
  }
  try await slower.expectCovered([early], "a write before \(count) others")
  // Elements that overflowed the subscribers' buffers must not be the last ones.
  for round in 0..<3 {
    let later = key("later \(round)")
    try await engine.write(data("v"), key: later)
    for subscriber in [slow, slower] {
      try await subscriber.expectCovered([later], "a write after a subscriber had caught up")
    }
  }
}

/// Removes everything, and writes something before or after that, while the subscriber does not read. If an engine merges
/// the changes, the removed keys are covered as well.
private func checkUnreadRemovals(_ engine: EngineUnderTest, _ context: CheckContext) async throws {
  let (removed, other) = (keys(2, prefix: "removed unread/"), key("written unread"))
  for isRemovedFirst in [true, false] {
    try await engine.write(entries(removed))
    let subscriber = try await ChangeSubscriber(to: engine, context)
    if !isRemovedFirst { try await engine.write(data("v"), key: other) }
    try await engine.removeAllData()
    if isRemovedFirst { try await engine.write(data("v"), key: other) }
    try await subscriber.expectCovered(
      removed + [other],
      "removeAllData() and a write \(isRemovedFirst ? "after" : "before") it that had not been read")
  }
}

/// Has a subscriber wait for a change while other changes follow without a pause. An engine that waits for a pause
/// before it sends anything sends nothing.
func coverWithoutAPause(_ engine: EngineUnderTest, _ context: CheckContext) async throws {
  let subscriber = try await ChangeSubscriber(to: engine, context)
  let (awaited, busy, isOver) = (key("awaited among others"), key("without a pause"), Flag())
  try await engine.write(data("v"), key: awaited)
  async let others: Void = { @concurrent in
    while !isOver.isSet {
      try await engine.write(data("v"), key: busy)
      await Task.yield()
    }
  }()
  let result: Result<Void, any Error>
  do {
    try await subscriber.expectCovered([awaited], "a write that others have followed without a pause")
    result = .success(())
  } catch {
    result = .failure(error)
  }
  isOver.set()
  try await others
  try result.get()
}
