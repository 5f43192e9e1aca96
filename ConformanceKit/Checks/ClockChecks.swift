import StockroomCore

// A clock that is set back: rules W2 and R6.

extension CheckDefinition {
  @CheckList static var clockChecks: [CheckDefinition] {
    Check(
      .w2, "clock.set-back",
      "when the clock is set back, updatedAt does not go back, createdAt is not the later one, and both are the same "
        + "after reopening", needsWorker: true
    ) { try await checkClock($0, .timestamps) }
    // With single writes alone an engine may have readAllEntries() by default, which knows the times only.
    Check(
      .r6, "clock.set-back-and-order",
      "when the clock is set back, readAllEntries() keeps the order in which the keys were first written",
      needs: .atomicBatches, needsWorker: true
    ) { try await checkClock($0, .order) }
  }
}

/// Makes the check again if the tool could not start the process: one that was killed earlier, of somebody else's, may
/// have left something behind that keeps a later one of the same number from starting. It belongs to nobody then.
private func checkClock(_ context: CheckContext, _ question: ClockRollback.Question) async throws {
  for _ in 0..<2 {
    do {
      return try await checkClockOnce(context, question)
    } catch let protocolError as WorkerProcess.ProtocolError
      where protocolError.what.contains("faketime:")
    {
      context.noteProgress()
    }
  }
  try await checkClockOnce(context, question)
}

private func checkClockOnce(_ context: CheckContext, _ question: ClockRollback.Question) async throws {
  let worker = try context.startWorker(under: try FakeClock.tool())
  let task = ClockRollback(
    place: context.place, isPersistent: context.capabilities.contains(.persistent), question: question)
  var failure: (any Error)?
  do {
    try await context.check(task, in: worker, limit: context.patience(atMost: .seconds(20)))
  } catch {
    failure = error
  }
  // What has started the process has to tidy up, which it cannot if it is killed.
  worker.closeInput()
  await worker.waitUntilEnd()
  FakeClock.removeTraces(ofProcess: worker.identifier)
  // Timers of the system may take the fake clock for the right one, and some processes do not even start with it.
  if failure is WorkerStalled {
    throw Skip(reason: "The process does not get along with the fake clock that the kit gives it.")
  }
  if let failure { throw failure }
}
