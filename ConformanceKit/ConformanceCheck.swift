/// A check of one rule of the contract.
///
/// A check creates its own directory and removes it. Any number of checks may run at the same time.
public struct ConformanceCheck: Sendable, Identifiable {
  /// The identifier of the check, such as `write.overwrite-keeps-created-at`. It is the same for every
  /// engine.
  public var id: String { definition.id }
  /// The rule that the check is about.
  public var rule: ContractRule { definition.rule }
  /// What the check expects of the engine, as a clause: "an overwrite keeps createdAt".
  public var expectation: String { definition.expectation }

  /// Whether the check acts directly on the server, or on the network between engine and server.
  package var actsOnServer: Bool { definition.actsOnNetwork }

  let definition: CheckDefinition
  let suite: ConformanceSuite

  /// Whether the check needs a worker process and the suite has none.
  var lacksWorker: Bool { definition.needsWorker && suite.worker == nil }

  /// Whether the level of the suite's budget is too low for the check.
  var isBeyondLevel: Bool { definition.level > suite.budget.level }

  /// Why the suite does not run the check, or nil if it does.
  var reasonLeftOut: String? {
    if isBeyondLevel { return "The check only runs at the level \(definition.level) or above." }
    return lacksWorker ? ConformanceSuite.hasNoWorker : nil
  }

  /// Runs the check. Returns if the engine passes it, or if it cannot run here.
  ///
  /// The first check of a suite without a ``ConformanceWorker`` prints to standard error how many checks are
  /// left out.
  ///
  /// - Throws: ``ConformanceFailure`` if the engine breaks the rule or makes no progress within the suite's
  ///   stall timeout; ``ConformanceCheckError`` if the check itself failed; `CancellationError` if the task
  ///   is cancelled.
  public func run() async throws {
    suite.noteChecksLeftOut()
    switch await outcome() {
    case .passed: return
    case .skipped: try Task.checkCancellation()
    case .failed(let failure): throw failure
    case .couldNotRun(let reason): throw ConformanceCheckError(check: id, reason: reason)
    }
  }

  /// Runs the check and returns its outcome. If it cannot run here, the outcome is
  /// ``ConformanceOutcome/skipped(_:)`` with the reason.
  ///
  /// A process runs only a few checks at a time; the others wait.
  public func outcome() async -> ConformanceOutcome { await result().outcome }

  /// Runs the check and returns the result for the report.
  package func result() async -> ConformanceReport.Result {
    let clock = ContinuousClock()
    let start = clock.now
    let (outcome, shortfall) = await ending()
    return ConformanceReport.Result(
      check: id, rule: rule, expectation: expectation, outcome: outcome,
      seconds: (clock.now - start).inSeconds, shortfall: outcome == .passed ? shortfall : nil)
  }

  private func ending() async -> (outcome: ConformanceOutcome, shortfall: String?) {
    // Without a worker, some of these checks would run in this process, and could leave it without permissions.
    if let reasonLeftOut { return (.skipped(reasonLeftOut), nil) }
    // Otherwise the speed of the machine would decide whether a short check passes or is skipped.
    if Task.isCancelled { return (.skipped(Self.cancelled), nil) }
    // Before entering the semaphore, so that checks that wait for the server do not hold up the others.
    await suite.server?.enter(definition)
    let ending = await AsyncSemaphore.shared.pass { () -> (ConformanceOutcome, String?) in
      for _ in 0..<2 {
        let (start, context) = (ClockReading(), CheckContext(suite: suite))
        let outcome = await make(in: context)
        // If the clock was set during the check, timestamps from before and after cannot be compared: run the check
        // again.
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
          "\(suite.name), \(id): \(exceeded.standstill). The run cannot continue, because every thread of "
            + "Swift's cooperative pool is blocked.")
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

  /// A fault of an engine is thrown as one of a few error types. Any other error is a failure of the check itself, for
  /// instance because there is no space for its directory, except in the checks of stores: a store may throw any error.
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
  /// The rule and the identifier of the check.
  public var description: String { "\(rule) \(id)" }
}
