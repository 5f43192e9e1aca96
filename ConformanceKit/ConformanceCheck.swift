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

  let definition: CheckDefinition
  let suite: ConformanceSuite

  /// Makes the check. Returns if the engine passes it, and also if it cannot be made here.
  ///
  /// - Throws: ``ConformanceFailure`` if the engine breaks the rule or gets nowhere within the suite's time limit;
  ///   `CancellationError` if the task is cancelled.
  public func run() async throws {
    switch await outcome() {
    case .passed: return
    case .skipped: try Task.checkCancellation()
    case .failed(let failure): throw failure
    }
  }

  /// Makes the check and tells how it ended. A check that cannot be made here says why.
  ///
  /// Of all the checks that are started in a process, a few run at a time.
  public func outcome() async -> ConformanceOutcome {
    await Turnstile.shared.pass { await make() }
  }

  private func make() async -> ConformanceOutcome {
    let context = CheckContext(suite: suite)
    let result = await withTimeLimit(suite.timeLimit, since: context.progress, on: CheckThreads()) {
      await context.perform(definition.body)
    }
    switch result {
    case .success(.success): return .passed
    case .success(.failure(let error)):
      if Task.isCancelled { return .skipped("The task was cancelled.") }
      if let skip = error as? Skip { return .skipped(skip.reason) }
      return .failed(failure(error as? Violation ?? Violation(String(describing: error))))
    case .failure:
      context.removeDirectory()
      return .failed(failure(Violation(context.progress.standstill(of: suite.timeLimit))))
    }
  }

  private func failure(_ violation: Violation) -> ConformanceFailure {
    ConformanceFailure(
      rule: violation.rule ?? rule, check: id, expectation: expectation, happened: violation.description,
      proof: violation.proof, seed: violation.seed ?? suite.effort.seed)
  }
}

extension ConformanceCheck: CustomStringConvertible {
  /// The rule and the name of the check.
  public var description: String { "\(rule) \(id)" }
}
