#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Effects that come late, or twice: rules C1 and C4.

extension CheckDefinition {
  @CheckList static var lateEffectChecks: [CheckDefinition] {
    Check(
      .c4, "late.after-cancelled-calls",
      "a call that was cancelled and threw changes nothing later either, whatever is called in the meantime"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(
        quick: 40, standard: 300, exhaustive: 5_000, of: "rounds of 8 cancelled calls")
      for round in rounds { try await cancelAndWait(engine, round) }
    }
    Check(
      .c1, "late.after-acknowledged-calls",
      "a call has its effect once, before it returns: no later write is undone, and nothing that was removed comes back"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(quick: 60, standard: 600, exhaustive: 20_000, of: "rounds of 20 changes")
      for round in rounds { try await changeAndLookAgain(engine, round) }
    }
  }
}

/// Cancels changes of keys of their own, writes what those that threw had wanted to change, and looks whether it stays.
private func cancelAndWait(_ engine: EngineUnderTest, _ round: Int) async throws {
  let keys = keys(8, prefix: "late-")
  try await engine.write(keys.map { ($0, data("old")) })
  let tasks = keys.enumerated().map { number, key in
    Task { @concurrent in
      if (number + round) % 8 == 0 { withUnsafeCurrentTask { $0?.cancel() } }
      switch number % 4 {
      case 0: try await engine.write(data("cancelled"), key: key)
      case 1: try await engine.remove(key: key)
      case 2: try await engine.apply([.write(data("cancelled"), key: key)])
      default: try await engine.write([(key, data("cancelled"))])
      }
    }
  }
  for _ in 0..<round % 6 { await Task.yield() }
  for task in tasks { task.cancel() }
  var expected: [(key: CacheKey, data: Data)] = []
  var isUnknown = false
  for (key, task) in zip(keys, tasks) {
    guard case .failure(let error) = await task.result else { continue }
    if engine.leavesOutcomeUnknown(error) {
      isUnknown = true
      continue
    }
    if round.isMultiple(of: 2) {
      try await engine.write(data("new"), key: key)
      expected.append((key, data("new")))
    } else {
      expected.append((key, data("old")))
    }
  }
  // Calls for a late effect to come in between.
  for _ in 0..<6 {
    _ = try await engine.keyCount()
    await Task.yield()
  }
  for (key, wanted) in expected {
    let found = try await engine.read(key: key)
    try expect(found, is: wanted, "read(key:) of \(key), a change of which was cancelled and threw before,")
  }
  // What may happen yet is not to meet the next round.
  if isUnknown { try await ExpectedContents.settle(engine) }
}

/// Changes keys in several tasks, each its own and one time after the other, and looks at all of them some calls later.
private func changeAndLookAgain(_ engine: EngineUnderTest, _ round: Int) async throws {
  try await gather(0..<4) { task in
    let own = key("again-\(task)")
    for step in 0..<5 {
      let number = round * 5 + step
      if number % 3 == 2 {
        try await engine.remove(key: own)
      } else {
        try await engine.write(data("number \(number)"), key: own)
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
