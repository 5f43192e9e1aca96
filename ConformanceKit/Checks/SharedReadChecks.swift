#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Tasks that read the same keys concurrently, so that an engine may combine them into one read: rules C1 and C4.

extension CheckDefinition {
  @CheckList static var sharedReadChecks: [CheckDefinition] {
    Check(
      .c1, "crowd.reads-are-not-shared-with-writes",
      "of many tasks that read the same keys, by any method, none that begins after a change returns the old "
        + "state"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(
        quick: 6, standard: 60, exhaustive: 1_500, of: "rounds of all methods that read")
      for round in rounds {
        for method in ReadMethod.allCases {
          context.noteProgress()
          try await askBetweenChanges(method, context, engine, round)
        }
      }
      try await askAmongMany(context)
    }
    Check(
      .c1, "crowd.removals-are-not-shared-with-writes",
      "of many tasks that remove the same keys, by any method, none that begins after a write leaves the "
        + "entry there"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(
        quick: 8, standard: 80, exhaustive: 2_000, of: "rounds of all methods that remove")
      for round in rounds {
        for method in ChangeMethod.allCases where method.removes {
          context.noteProgress()
          try await removeBesideOthers(method, engine, round)
        }
      }
    }
    Check(
      .c4, "crowd.cancelled-beside-others",
      "cancelling a call does not make a concurrent call throw, even for the same keys"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(
        quick: 12, standard: 60, exhaustive: 1_000, of: "rounds of five calls of each method")
      let threads = CheckExecutor()
      defer { threads.stop() }
      for round in rounds { try await cancelSomeOfMany(context, engine, round, on: threads) }
    }
  }
}

/// Changes a key and reads it repeatedly, at first alone and then while others read the same key.
private func askBetweenChanges(
  _ method: ReadMethod, _ context: CheckContext, _ engine: EngineUnderTest, _ round: Int
) async throws {
  let hot = key("hot")
  let (writing, removing) = (
    ChangeMethod.writing(context.capabilities), ChangeMethod.allCases.filter(\.removes)
  )
  @Sendable func changeAndAsk(_ number: Int, _ who: String) async throws {
    let change =
      number % 4 == 2
      ? removing[(round + number / 4) % removing.count] : writing[(round + number) % writing.count]
    let value = data("\(round), \(number)")
    // So that the changes have different times.
    if method == .updatedAt { try await letClockAdvance() }
    let window = try await window { try await change.perform([(hot, value)], in: engine) }
    let when = "begun after \(change.call) had returned, \(who),"
    try expect(
      try await method.found(of: [hot], in: engine),
      is: change.removes ? [] : [method.givesValues ? value : nil], "\(method.call), \(when)")
    guard method == .updatedAt, let time = try await engine.updatedAt(key: hot) else { return }
    try expect(window.contains(time), "\(method.call), \(when) was \(describe(time)), not of that change")
  }
  try await engine.removeAllData()
  do {
    for number in 0..<4 { try await changeAndAsk(number, "while no other task read") }
  } catch let violation as Violation {
    // The fault does not depend on concurrent reads.
    throw Violation(violation.description, rule: method.rule)
  }
  try await whileRunning {
    for number in 4..<12 { try await changeAndAsk(number, "while other tasks asked the same") }
  } readers: { _ in
    // Other checks cover what it returns.
    _ = try? await method.found(of: [hot], in: engine)
  }
}

/// Changes an entry among many and reads everything, while others read everything: each of their calls lasts long enough to begin
/// before the change and to end after it.
private func askAmongMany(_ context: CheckContext) async throws {
  let affordable = try await context.affordableEntries()
  let wanted = context.byLevel(quick: 3_000, standard: 10_000, exhaustive: 20_000)
  let count = min(wanted, max(50, min(affordable.writes / 2, affordable.reads / 200)))
  if count < wanted { context.noteShortfall("\(count) of \(wanted) entries") }
  let engine = try await context.open(context.root.appending(path: "many", directoryHint: .isDirectory))
  let (hot, others) = (key("hot"), keys(count))
  try await engine.write(entries(others))
  for method in ReadMethod.ofManyValues {
    try await whileRunning {
      for number in 0..<12 {
        context.noteProgress()
        let value = data("\(method.rawValue) \(number)")
        try await engine.write(value, key: hot)
        try expect(
          try await method.found(of: [hot] + others, in: engine).contains(value),
          "\(method.call) of \(count) entries, begun after a write had returned, while other tasks asked the same, did not contain "
            + "the value written")
        await Task.yield()
      }
    } readers: { _ in
      _ = try? await method.found(of: [hot] + others, in: engine)
    }
  }
}

/// Writes a key and removes it repeatedly, while other tasks remove it too.
private func removeBesideOthers(_ method: ChangeMethod, _ engine: EngineUnderTest, _ round: Int) async throws
{
  let hot = key("hot")
  try await whileRunning {
    for number in 0..<8 {
      try await engine.write(data("\(round), \(number)"), key: hot)
      try await method.perform([(hot, Data())], in: engine)
      try expect(
        try await engine.read(key: hot), is: nil,
        "read(key:) of a key after \(method.call), begun when it had been written, while others removed it")
    }
  } readers: { _ in
    try await method.perform([(hot, Data())], in: engine)
  }
}

/// Starts calls of every method at the same time, and cancels the first and the fourth of each. The third and the fourth
/// change the same key, because an engine may combine changes of one key that wait.
private func cancelSomeOfMany(
  _ context: CheckContext, _ engine: EngineUnderTest, _ round: Int, on threads: CheckExecutor
) async throws {
  let hot = key("hot")
  let changes = ChangeMethod.all(context.capabilities).filter { $0 != .removeAll }
  let isNetworked = context.capabilities.contains(.networked)
  func beside(_ change: ChangeMethod, _ number: Int) -> [(key: CacheKey, data: Data)] {
    // The engine may abort one of two transactions that change the same key.
    let isShared = (2...3).contains(number) && change != .transaction
    // A server may still execute a change that was cancelled in an earlier round.
    let shared = isNetworked ? "shared in round \(round)" : "shared"
    return keys(1, prefix: "beside-\(change.rawValue)-\(isShared ? shared : "\(number)")-").map {
      ($0, data("\(round), written by \(number)"))
    }
  }
  let calls = 5
  let removed = changes.filter(\.removes).flatMap { change in (0..<calls).flatMap { beside(change, $0) } }
  try await engine.write([(hot, data("hot"))] + removed)
  let (cancelled, others) = ([0, 3], [1, 2, 4])
  let reads = ReadMethod.allCases.map { method in
    (0..<calls).map { _ in
      Task(executorPreference: threads) { @concurrent () async throws -> [Data?] in
        guard method == .allKeys else { return try await method.found(of: [hot], in: engine) }
        return try await engine.allKeys().filter { $0 == hot }.map { _ in nil }
      }
    }
  }
  let writes = changes.map { change in
    (0..<calls).map { number in
      Task(executorPreference: threads) { @concurrent in
        try await change.perform(beside(change, number), in: engine)
      }
    }
  }
  for _ in 0..<round % 5 { await Task.yield() }
  for number in cancelled {
    for tasks in reads { tasks[number].cancel() }
    for tasks in writes { tasks[number].cancel() }
  }
  // Waits for all of them before checking any, so that none is still running when the engine is closed.
  let (answers, outcomes) = (await results(of: reads), await results(of: writes))
  for (method, answers) in zip(ReadMethod.allCases, answers) {
    for number in others {
      let found = try answers[number].get()
      // Keys that other tasks write and remove meanwhile may or may not be found.
      try expect(
        found.contains(method.givesValues ? data("hot") : nil),
        "\(method.call) beside one that was cancelled did not find a key that was there")
    }
  }
  for (change, outcomes) in zip(changes, outcomes) {
    for number in others {
      try outcomes[number].get()
      for (key, data) in beside(change, number) {
        let found = try await engine.read(key: key)
        // A cancelled call that has not thrown CancellationError may have written its own value.
        let other = beside(change, 3).first { $0.key == key && number == 2 && !change.removes }
        if let other, found == other.data, !isCancellation(outcomes[3]) { continue }
        try expect(
          found, is: change.removes ? nil : data,
          "read(key:) of a key after \(change.call) beside one that was cancelled")
      }
    }
  }
}

/// Whether the call has thrown `CancellationError`.
private func isCancellation(_ outcome: Result<Void, any Error>) -> Bool {
  guard case .failure(let error) = outcome else { return false }
  return ((error as? CallFailure)?.error ?? error) is CancellationError
}

/// The results of the tasks, when all of them have ended.
private func results<Value>(
  of groups: [[Task<Value, any Error>]]
) async -> [[Result<Value, any Error>]] {
  var results: [[Result<Value, any Error>]] = []
  for tasks in groups {
    var some: [Result<Value, any Error>] = []
    for task in tasks { some.append(await task.result) }
    results.append(some)
  }
  return results
}
