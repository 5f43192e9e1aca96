#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Tasks that ask the same at the same time, of which an engine may make one question: rules C1 and C4.

extension CheckDefinition {
  @CheckList static var sharedReadChecks: [CheckDefinition] {
    Check(
      .c1, "crowd.reads-are-not-shared-with-writes",
      "of many tasks that ask the same, by whatever method, none that begins after a change has the answer from before it"
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
    }
    Check(
      .c4, "crowd.cancelled-beside-others",
      "a call that is not cancelled does not throw because another was, for the same keys or in the same moment"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(
        quick: 12, standard: 60, exhaustive: 1_000, of: "rounds of five calls of each method")
      for round in rounds { try await cancelSomeOfMany(context, engine, round) }
    }
  }
}

/// Changes a key and asks for it, again and again, while others ask the same.
private func askBetweenChanges(
  _ method: ReadMethod, _ context: CheckContext, _ engine: EngineUnderTest, _ round: Int
) async throws {
  let hot = key("hot")
  let (writing, removing) = (
    ChangeMethod.writing(context.capabilities), ChangeMethod.allCases.filter(\.removes)
  )
  try await engine.removeAllData()
  try await whileRunning {
    for number in 0..<8 {
      let change =
        number % 4 == 3
        ? removing[(round + number / 4) % removing.count] : writing[(round + number) % writing.count]
      let value = data("\(round), \(number)")
      // Times tell the changes from each other then.
      if method == .updatedAt { try await letClockAdvance() }
      let window = try await window { try await change.perform([(hot, value)], in: engine) }
      let when = "begun after \(change.call) had returned, while other tasks asked the same,"
      try expect(
        try await method.found(of: [hot], in: engine),
        is: change.removes ? [] : [method.givesValues ? value : nil], "\(method.call), \(when)")
      guard method == .updatedAt, let time = try await engine.updatedAt(key: hot) else { continue }
      try expect(window.contains(time), "\(method.call), \(when) was \(describe(time)), not of that change")
    }
  } readers: { _ in
    // What it answers is for other checks to say.
    _ = try? await method.found(of: [hot], in: engine)
  }
}

/// Begins calls of every method in the same moment, and cancels the first and the fourth of each.
private func cancelSomeOfMany(_ context: CheckContext, _ engine: EngineUnderTest, _ round: Int) async throws {
  let hot = key("hot")
  let changes = ChangeMethod.all(context.capabilities).filter { $0 != .removeAll }
  func beside(_ change: ChangeMethod, _ number: Int) -> [(key: CacheKey, data: Data)] {
    entries(keys(1, prefix: "beside-\(change.rawValue)-\(number)-"), version: round)
  }
  let calls = 5
  let removed = changes.filter(\.removes).flatMap { change in (0..<calls).flatMap { beside(change, $0) } }
  try await engine.write([(hot, data("hot"))] + removed)
  let (cancelled, others) = ([0, 3], [1, 2, 4])
  let reads = ReadMethod.allCases.map { method in
    (0..<calls).map { _ in Task { @concurrent in try await method.found(of: [hot], in: engine) } }
  }
  let writes = changes.map { change in
    (0..<calls).map { number in
      Task { @concurrent in try await change.perform(beside(change, number), in: engine) }
    }
  }
  for _ in 0..<round % 5 { await Task.yield() }
  for number in cancelled {
    for tasks in reads { tasks[number].cancel() }
    for tasks in writes { tasks[number].cancel() }
  }
  for (method, tasks) in zip(ReadMethod.allCases, reads) {
    for number in others {
      let found = try await tasks[number].value
      try expect(
        found.contains(method.givesValues ? data("hot") : nil),
        "\(method.call) beside one that was cancelled did not find a key that was there")
    }
  }
  for (change, tasks) in zip(changes, writes) {
    for number in others {
      try await tasks[number].value
      for (key, data) in beside(change, number) {
        try expect(
          try await engine.read(key: key), is: change.removes ? nil : data,
          "read(key:) of a key after \(change.call) beside one that was cancelled")
      }
    }
  }
  for number in cancelled {
    for tasks in reads { _ = await tasks[number].result }
    for tasks in writes { _ = await tasks[number].result }
  }
}
