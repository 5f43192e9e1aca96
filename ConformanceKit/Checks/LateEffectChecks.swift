#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Delayed or repeated effects: rules C1 and C4.

extension CheckDefinition {
  @CheckList static var lateEffectChecks: [CheckDefinition] {
    Check(
      .c4, "late.after-cancelled-calls",
      "a call that threw because it was cancelled or invalid has no effect later either, whatever is called "
        + "in the meantime"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(
        quick: 40, standard: 300, exhaustive: 5_000, of: "rounds of cancelled calls of each method")
      // A thread for each change, since the engine may block it.
      let threads = CheckExecutor(count: ChangeMethod.allCases.count)
      defer { threads.stop() }
      for round in rounds { try await cancelAndWait(context, engine, round, on: threads) }
    }
    Check(
      .c1, "late.after-acknowledged-calls",
      "a call takes effect once, before it returns: no later write is undone, and no removed entry comes back"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(quick: 60, standard: 600, exhaustive: 20_000, of: "rounds of 20 changes")
      for round in rounds { try await changeAndLookAgain(engine, round) }
    }
    Check(
      .c1, "late.behind-long-bodies",
      "a change that has waited for the body of a transaction takes effect once, before it returns",
      needs: .transactions
    ) { context in
      let engine = try await context.open()
      for method in ChangeMethod.writing([]) {
        context.noteProgress()
        try await changeBehindBody(method, engine)
      }
    }
  }
}

/// Cancels changes of separate keys, in every way, writes the keys of those that threw, and checks that these
/// writes stay.
private func cancelAndWait(
  _ context: CheckContext, _ engine: EngineUnderTest, _ round: Int, on threads: CheckExecutor
) async throws {
  let changes = ChangeMethod.all(context.capabilities).filter { $0 != .removeAll }
  let keys = keys(changes.count, prefix: "late-")
  try await engine.write(keys.map { ($0, data("old")) })
  // Removing everything cannot be combined with other changes here.
  let cancelled = round % 5 == 4 ? [.removeAll] : changes
  let tasks = zip(cancelled, keys).enumerated().map { number, call in
    Task(executorPreference: threads) { @concurrent in
      if (number + round) % cancelled.count == 0, round.isMultiple(of: 2) {
        withUnsafeCurrentTask { $0?.cancel() }
      }
      try await call.0.perform([(call.1, data("cancelled"))], in: engine)
    }
  }
  for _ in 0..<round % 6 { await Task.yield() }
  for task in tasks { task.cancel() }
  var expected: [(key: CacheKey, data: Data, change: ChangeMethod)] = []
  var isUnknown = false
  for (number, task) in tasks.enumerated() {
    guard case .failure(let error) = await task.result else { continue }
    if engine.leavesOutcomeUnknown(error) {
      isUnknown = true
      continue
    }
    let (change, concerned) = (cancelled[number], cancelled == changes ? [keys[number]] : keys)
    for key in concerned {
      if round.isMultiple(of: 3) { try await engine.write(data("new"), key: key) }
      expected.append((key, data(round.isMultiple(of: 3) ? "new" : "old"), change))
    }
  }
  let refused = try await refuseSome(engine, round)
  // Calls between which a delayed effect may occur, or with which it may be sent.
  for (number, change) in changes.enumerated() {
    _ = try await engine.keyCount()
    try await change.perform([(key("beside \(number)"), data("beside"))], in: engine)
    await Task.yield()
  }
  for (key, wanted, change) in expected {
    try expect(
      try await engine.read(key: key), is: wanted,
      "read(key:) of \(key), after \(change.call) that was cancelled and threw before,")
  }
  if !isUnknown { try await expectStored(refused, in: engine) }
  // A change that may still take effect must not do so in the next round.
  if isUnknown { try await ExpectedContents.settle(engine) }
}

/// Makes calls that throw because a key is invalid or because the body of a transaction throws. Returns the entries
/// that must stay unchanged.
private func refuseSome(
  _ engine: EngineUnderTest, _ round: Int
) async throws -> [(key: CacheKey, data: Data)] {
  let kept = keys(4, prefix: "refused-").map { (key: $0, data: data("old")) }
  try await engine.write(kept)
  let new = kept.map { (key: $0.key, data: data("refused in round \(round)")) }
  let bad = (key: key(""), data: data("refused"))
  try await expectError(.invalidKey, from: "write(_:) of many") { try await engine.write(new + [bad]) }
  try await expectError(.invalidKey, from: "apply(_:)") {
    try await engine.apply(
      new.map { StorageOperation.remove(key: $0.key) } + [.write(bad.data, key: bad.key)])
  }
  try await expectError(.invalidKey, from: "remove(keys:)") {
    try await engine.remove(keys: new.map(\.key) + [bad.key])
  }
  guard engine.capabilities.contains(.transactions) else { return kept }
  do {
    try await engine.withTransaction { transaction in
      if round.isMultiple(of: 2) { try transaction.remove(key: new[3].key) }
      for (key, data) in new.prefix(3) { try transaction.write(data, key: key) }
      throw ThrownByBody()
    }
  } catch let failure as CallFailure {
    guard failure.error is ThrownByBody else { throw failure }
  }
  return kept
}

/// Writes a key twice during a long body, and checks that the second value stays.
private func changeBehindBody(_ method: ChangeMethod, _ engine: EngineUnderTest) async throws {
  let (own, milliseconds) = (key("\(method.call) behind a body"), 350)
  let body = PausedBody(in: engine, milliseconds: milliseconds) { _, pause in pause() }
  try await body.begin()
  for value in ["first", "second"] { try await method.perform([(own, data(value))], in: engine) }
  try await body.end()
  // Enough time for repeated effects.
  for _ in 0..<100 {
    try expect(
      try await engine.read(key: own), is: data("second"),
      "read(key:) after two calls of \(method.call) while a body took \(milliseconds) ms")
    try await yieldToAllThreads()
  }
}

/// Has several tasks each change their own key repeatedly, by every method, and then read it several times.
private func changeAndLookAgain(_ engine: EngineUnderTest, _ round: Int) async throws {
  let (writing, removing) = (ChangeMethod.writing(engine.capabilities), [ChangeMethod.remove, .removeMany])
  try await gather(0..<4) { task in
    let own = key("again-\(task)")
    for step in 0..<5 {
      let number = round * 5 + step
      if number % 3 == 2 {
        try await removing[number / 3 % removing.count].perform([(own, Data())], in: engine)
      } else {
        let method = writing[(number / 3 * 2 + number % 3) % writing.count]
        try await method.performAmongMany([(own, data("number \(number)"))], in: engine)
      }
    }
    let last = round * 5 + 4
    let wanted = last % 3 == 2 ? nil : data("number \(last)")
    for _ in 0..<3 {
      let found = try await engine.read(key: own)
      try expect(found, is: wanted, "read(key:) of \(own) after change \(last), the last that was made,")
      await Task.yield()
    }
  }
}
