#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// A clock that is set back, and one that jumps: rules W1, W2, R6 and C3.

extension CheckDefinition {
  @CheckList static var clockChecks: [CheckDefinition] {
    Check(
      .w2, "clock.set-back",
      "when the clock is set back, updatedAt does not move backwards, createdAt is not later than it, and "
        + "both are the same after reopening", needsWorker: true
    ) { try await checkClock($0, .timestamps) }
    // Without atomic batches an engine may use the default readAllEntries(), which only sorts by times.
    Check(
      .r6, "clock.set-back-and-order",
      "when the clock is set back, readAllEntries() keeps the order in which the keys were first written",
      needs: .atomicBatches, needsWorker: true
    ) { try await checkClock($0, .order) }
    Check(
      .w1, "clock.jumps",
      "when the clock jumps by minutes, days or years, past 2038 and back, in any time zone, no entry "
        + "expires or is rejected, and writes and removals work", needsWorker: true
    ) { try await checkJumps($0, .contents) }
    Check(
      .w2, "clock.jumps-and-timestamps",
      "when the clock jumps, in any time zone, timestamps are those of the clock at the write, and do not "
        + "change",
      needsWorker: true
    ) { try await checkJumps($0, .timestamps) }
    // For the same reason as in `clock.set-back-and-order`.
    Check(
      .r6, "clock.jumps-and-order",
      "when the clock jumps, readAllEntries() keeps the order in which the keys were first written",
      needs: .atomicBatches, needsWorker: true
    ) { try await checkJumps($0, .order) }
    Check(
      .c3, "processes.clock-jumps",
      "when the clock jumps by 25 hours, a place that a process has open stays shared with another process, or "
        + "locked against it",
      needs: .persistent, needsWorker: true
    ) { try await checkPlaceAcrossJump($0) }
    Check(
      .c3, "processes.clock-jumps-during-a-body",
      "when the clock jumps by 25 hours during the body of a transaction, another process waits for the body or aborts "
        + "it, and no update of either is lost",
      needs: [.persistent, .multiProcess, .transactions], needsWorker: true
    ) { try await checkBodyAcrossJump($0) }
    Check(
      .w1, "clock.waiting",
      "an entry still exists after 65 seconds without calls, and new ones can be written",
      from: .exhaustive
    ) { context in
      let engine = try await context.open()
      try await engine.write(entries(keys(10)))
      for _ in 0..<65 {
        context.noteProgress()
        try await Task.sleep(for: .seconds(1))
      }
      try await engine.write(entries(keys(10, prefix: "later-")))
      try await expectStored(entries(keys(10) + keys(10, prefix: "later-")), in: engine)
      try expect(try await engine.keyCount(), is: 20, "keyCount() after 65 seconds")
    }
  }
}

private func checkClock(_ context: CheckContext, _ question: ClockRollback.Question) async throws {
  func task(at place: URL) -> ClockRollback {
    ClockRollback(
      place: place, isPersistent: context.capabilities.contains(.persistent), question: question)
  }
  try await skippingStalls {
    do {
      try await checkClock(context, task(at: context.place))
    } catch let stall as WorkerStalled where ClockRollback.stepsBack.contains(stall.step) {
      try await expectNoStall(context, stall.step, task)
    }
  }
}

/// Fails if a second process stalls at the same step after its clock was set back and one with the right clock does not.
/// Then neither the tool nor a busy machine is the reason.
private func expectNoStall(
  _ context: CheckContext, _ step: String, _ task: (URL) -> ClockRollback
) async throws {
  func place(_ name: String) -> URL { context.root.appending(path: name, directoryHint: .isDirectory) }
  context.noteProgress()
  do {
    try await checkClock(context, task(place("second")))
  } catch let stall as WorkerStalled where stall.step == step {
    context.noteProgress()
    var control = task(place("right clock"))
    control.offsets = control.offsets.map { _ in 0 }
    try await checkClock(context, control)
    throw Violation(
      "each of two processes with a changed clock hung during \(step), and one with the right clock did not",
      rule: .w1)
  }
}

private func checkJumps(_ context: CheckContext, _ question: ClockJumps.Question) async throws {
  if context.clockTolerance > .zero {
    throw Skip(reason: "The engine's timestamps are not set by the clock of its process.")
  }
  try await skippingStalls {
    try await checkClock(
      context,
      ClockJumps(
        place: context.place, isPersistent: context.capabilities.contains(.persistent), question: question))
  }
}

/// Timers of the system may use the fake clock, and some processes do not even start with it.
private func skippingStalls(_ body: () async throws -> Void) async throws {
  do {
    try await body()
  } catch is WorkerStalled {
    throw Skip(reason: "The process does not work with the fake clock of the kit.")
  }
}

/// Runs the check again if the tool could not start the process. A process that was killed earlier may have left a
/// shared object behind that keeps a later process with the same number from starting.
private func checkClock(_ context: CheckContext, _ task: some CheckTask) async throws {
  for _ in 0..<2 {
    do {
      return try await checkClockOnce(context, task)
    } catch let protocolError as WorkerProcess.ProtocolError
      where protocolError.what.contains("faketime:")
    {
      context.noteProgress()
    }
  }
  try await checkClockOnce(context, task)
}

private func checkClockOnce(_ context: CheckContext, _ task: some CheckTask) async throws {
  let worker = try context.startWorker(under: try FakeClock.tool())
  var failure: (any Error)?
  do {
    try await context.check(task, in: worker, limit: context.timeout(atMost: .seconds(20)))
  } catch {
    failure = error
  }
  // The process has ended or has timed out.
  context.noteProgress()
  // The program that started the process has to clean up. It cannot do that if it is killed.
  worker.closeInput()
  await worker.waitUntilEnd()
  FakeClock.removeTraces(ofProcess: worker.identifier)
  if let failure { throw failure }
}
