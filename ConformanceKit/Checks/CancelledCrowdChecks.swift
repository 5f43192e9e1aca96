#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Many calls that are cancelled at once: rule C4.

extension CheckDefinition {
  @CheckList static var cancelledCrowdChecks: [CheckDefinition] {
    Check(
      .c4, "crowd.a-thousand-cancelled-calls",
      "of many waiting calls, cancelled ones return or throw CancellationError and the others return; after "
        + "a thousand cancelled calls, 300 tasks can still use the engine"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(
        quick: 80, standard: 800, exhaustive: 8_000, of: "rounds of 40 cancelled calls")
      for round in rounds { try await cancelSome(context, engine, round) }
      // What was cancelled on its way to a server may happen yet.
      try await ExpectedContents.settle(engine)
      try await useByMany(context, engine)
    }
  }
}

/// Begins 40 calls, half of those that change something of one kind, and cancels all of them a little later, or every other one. None may do
/// anything but its work or nothing.
private func cancelSome(_ context: CheckContext, _ engine: EngineUnderTest, _ round: Int) async throws {
  let (changes, reads) = (ChangeMethod.all(context.capabilities), ReadMethod.allCases)
  let tasks = (0..<40).map { number in
    Task { @concurrent in
      if number.isMultiple(of: 2) {
        // Half of them of one kind, for which there may be a queue.
        let change = changes[(number % 4 == 0 ? round : number / 4) % changes.count]
        let written = keys(change.isOfOneKey ? 1 : 3, prefix: "cancelled-\(number)-")
        try await change.perform(entries(written), in: engine)
      } else {
        _ = try await reads[(number / 2 + round) % reads.count].found(of: [key("hot")], in: engine)
      }
    }
  }
  for _ in 0..<round % 5 { await Task.yield() }
  for (number, task) in tasks.enumerated() where round.isMultiple(of: 3) || number % 4 < 2 { task.cancel() }
  // All of them, before any is checked: none is to go on when the engine is closed.
  var failures: [(number: Int, error: any Error)] = []
  for (number, task) in tasks.enumerated() {
    if case .failure(let error) = await task.result { failures.append((number, error)) }
  }
  for (number, error) in failures {
    let cause = (error as? CallFailure)?.error ?? error
    // A transaction may be given up where so many write.
    if engine.leavesOutcomeUnknown(error) || (cause as? StorageError)?.code == .conflict { continue }
    guard round.isMultiple(of: 3) || number % 4 < 2 else {
      throw Violation(
        "a call that was not cancelled threw while others were cancelled: "
          + "\(shortened(String(describing: error)))")
    }
    try expectCancellation(error, "call among many others")
  }
}
