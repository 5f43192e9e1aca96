/// One question about an engine, which belongs to one rule of the contract.
///
/// A check works in a directory of its own, which it removes. Any number of checks may run at the same time.
public struct ConformanceCheck: Sendable, Identifiable {
  /// The name of the check, such as `write.overwrite-keeps-created-at`. It is the same for every engine.
  public var id: String { definition.id }
  /// The rule that the check is about.
  public var rule: ContractRule { definition.rule }
  /// What the check expects of the engine, as a clause: "an overwrite keeps createdAt".
  public var expectation: String { definition.expectation }

  /// Whether the check acts on the server, or the network on the way there, and not only through an engine.
  package var actsOnServer: Bool { definition.actsOnNetwork }

  let definition: CheckDefinition
  let suite: ConformanceSuite

  /// Whether the suite lacks the worker process that the check needs.
  var lacksWorker: Bool { definition.needsWorker && suite.worker == nil }

  /// Whether the level of the suite's budget is too low for the check.
  var isBeyondLevel: Bool { definition.level > suite.budget.level }

  /// Why the suite does not make the check, if it does not.
  var reasonLeftOut: String? {
    if isBeyondLevel { return "The check is made from the level \(definition.level) on." }
    return lacksWorker ? ConformanceSuite.hasNoWorker : nil
  }

  /// Makes the check. Returns if the engine passes it, and also if it cannot be made here.
  ///
  /// The first check of a suite that has no ``ConformanceWorker`` says on standard error how many checks are left out.
  ///
  /// - Throws: ``ConformanceFailure`` if the engine breaks the rule or gets nowhere within the suite's stall timeout;
  ///   ``ConformanceCheckError`` if the check itself failed; `CancellationError` if the task is cancelled.
  public func run() async throws {
    suite.noteChecksLeftOut()
    switch await outcome() {
    case .passed: return
    case .skipped: try Task.checkCancellation()
    case .failed(let failure): throw failure
    case .couldNotRun(let reason): throw ConformanceCheckError(check: id, reason: reason)
    }
  }

  /// Makes the check and returns how it ended. A check that cannot be made here says why.
  ///
  /// Of all the checks that are started in a process, a few run at a time.
  public func outcome() async -> ConformanceOutcome { await result().outcome }

  /// Makes the check and returns how it ended, as it is reported.
  package func result() async -> ConformanceReport.Result {
    let clock = ContinuousClock()
    let start = clock.now
    let (outcome, shortfall) = await ending()
    return ConformanceReport.Result(
      check: id, rule: rule, expectation: expectation, outcome: outcome,
      seconds: (clock.now - start).inSeconds, shortfall: outcome == .passed ? shortfall : nil)
  }

  private func ending() async -> (outcome: ConformanceOutcome, shortfall: String?) {
    // Some would otherwise be made in this process, which they may leave without permissions.
    if let reasonLeftOut { return (.skipped(reasonLeftOut), nil) }
    // A check that ends before anybody looks would otherwise pass or not, as fast as the machine is.
    if Task.isCancelled { return (.skipped(Self.cancelled), nil) }
    // Before it takes a place, so that those that wait for the server do not hold up the others.
    await suite.server?.enter(definition)
    let ending = await AsyncSemaphore.shared.pass { () -> (ConformanceOutcome, String?) in
      for _ in 0..<2 {
        let (start, context) = (ClockReading(), CheckContext(suite: suite))
        let outcome = await make(in: context)
        // Somebody may set the clock at any time, and no timestamp is of one before and after.
        if case .failed = outcome, !definition.killsServer, start.isOff(from: ClockReading()) { continue }
        return (outcome, context.shortfall)
      }
      let context = CheckContext(suite: suite)
      return (await make(in: context), context.shortfall)
    }
    await suite.server?.leave(definition)
    return ending
  }

  static let cancelled = "The task was cancelled."

  private func make(in context: CheckContext) async -> ConformanceOutcome {
    let result = await withStallTimeout(
      suite.stallTimeout, since: context.progress, on: CheckExecutor(),
      onUndelivered: { [id, suite] exceeded in
        System.note(
          "\(suite.name), \(id): \(exceeded.standstill). Nothing goes on here, since every "
            + "thread of Swift's cooperative pool is held.")
      }
    ) {
      await context.perform { [definition] context in
        try await definition.body(context)
        if definition.comparesAllWays { try await context.expectAllWaysAgree() }
      }
    }
    switch result {
    case .success(.success): return .passed
    case .success(.failure(let error)):
      return Task.isCancelled ? .skipped(Self.cancelled) : outcome(of: error)
    case .failure(let exceeded):
      context.removeDirectory()
      return .failed(failure(Violation(exceeded.standstill)))
    }
  }

  /// What the engine does wrong comes as one of a few errors. Any other is a failure of the check itself, which had no
  /// room for its directory, for instance; but a store may throw what it likes.
  private func outcome(of error: any Error) -> ConformanceOutcome {
    switch error {
    case let violation as Violation: .failed(failure(violation))
    case let skip as Skip: .skipped(skip.reason)
    case is CallFailure, is WorkerError, is WorkerProcess.Died, is WorkerStalled:
      .failed(failure(Violation(String(describing: error))))
    case _ where rule.isForStores: .failed(failure(Violation(String(describing: error))))
    default: .couldNotRun(shortened(String(describing: error)))
    }
  }

  private func failure(_ violation: Violation) -> ConformanceFailure {
    ConformanceFailure(
      rule: violation.rule ?? rule, check: id, expectation: expectation, actual: violation.description,
      evidence: violation.evidence, seed: violation.seed ?? suite.budget.seed)
  }
}

extension ConformanceCheck: CustomStringConvertible {
  /// The rule and the name of the check.
  public var description: String { "\(rule) \(id)" }
}
