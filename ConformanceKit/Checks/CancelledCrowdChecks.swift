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
      let threads = CheckExecutor()
      defer { threads.stop() }
      for round in rounds { try await cancelSome(context, engine, round, on: threads) }
      // A server may still execute a change that was cancelled while it was being sent.
      try await ExpectedContents.settle(engine)
      try await useByMany(context, engine)
    }
  }
}

/// Starts 40 calls, and cancels all of them, or every other one, a little later. Half of the changes among them are of
/// one kind. Each call must take effect completely or not at all.
private func cancelSome(
  _ context: CheckContext, _ engine: EngineUnderTest, _ round: Int, on threads: CheckExecutor
) async throws {
  let (changes, reads) = (ChangeMethod.all(context.capabilities), ReadMethod.allCases)
  let begun = AtomicCounter()
  let tasks = (0..<40).map { number in
    Task(executorPreference: threads) { @concurrent in
      begun.increment()
      if number.isMultiple(of: 2) {
        // Half of them are of one kind, some cancelled and some not, because the engine may have a queue for it.
        let change = changes[(number % 8 < 4 ? round : number / 4) % changes.count]
        let written = keys(change.isOfOneKey ? 1 : 3, prefix: "cancelled-\(number)-")
        try await change.perform(entries(written), in: engine)
      } else {
        _ = try await reads[(number / 2 + round) % reads.count].found(of: [key("hot")], in: engine)
      }
    }
  }
  // In some rounds, when all of them are in progress.
  while round % 4 < 2, begun.value < tasks.count { await Task.yield() }
  for _ in 0..<round % 5 { await Task.yield() }
  for (number, task) in tasks.enumerated() where round.isMultiple(of: 3) || number % 4 < 2 { task.cancel() }
  // Waits for all of them before checking any, so that none is still running when the engine is closed.
  var failures: [(number: Int, error: any Error)] = []
  for (number, task) in tasks.enumerated() {
    if case .failure(let error) = await task.result { failures.append((number, error)) }
  }
  for (number, error) in failures {
    let cause = (error as? CallFailure)?.error ?? error
    // The engine may abort a transaction when so many tasks write.
    if engine.leavesOutcomeUnknown(error) || (cause as? StorageError)?.code == .conflict { continue }
    guard round.isMultiple(of: 3) || number % 4 < 2 else {
      throw Violation(
        "a call that was not cancelled threw while others were cancelled: "
          + "\(shortened(String(describing: error)))")
    }
    try expectCancellation(error, "call among many others")
  }
}
