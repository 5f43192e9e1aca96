/// What a run of a suite has found.
///
/// ``ConformanceResults`` shows one report, or those of several engines side by side, as text, Markdown, JSON or JUnit
/// XML.
public struct ConformanceReport: Sendable, Hashable, Codable {
  /// One check and how it ended.
  public struct Result: Sendable, Hashable, Codable {
    /// The identifier of the check.
    public let check: String
    /// The rule that the check is about.
    public let rule: ContractRule
    /// What the check expects, as a clause.
    public let expectation: String
    /// How it ended.
    public let outcome: ConformanceOutcome
    /// How long it took, in seconds.
    public let seconds: Double
  }

  /// The name of the suite: the engine.
  public let name: String
  /// The names of the capabilities that the engine was said to have.
  public let capabilities: [String]
  /// How hard the checks tried.
  public let effort: ConformanceEffort
  /// Every check that was asked for, in the order of the contract. Those that were left out count as skipped.
  public let results: [Result]
  /// How many checks apply to the engine, whether they were asked for or not.
  public let applicableCount: Int
  /// How many of the results are checks that were left out because the suite has no ``ConformanceChild``.
  public let leftOutCount: Int
  /// How long the run took, in seconds.
  public let seconds: Double

  init(
    name: String, capabilities: [String], effort: ConformanceEffort, results: [Result],
    applicableCount: Int? = nil, leftOutCount: Int = 0, seconds: Double
  ) {
    (self.name, self.capabilities, self.effort) = (name, capabilities, effort)
    (self.results, self.seconds) = (results, seconds)
    self.applicableCount = applicableCount ?? results.count
    self.leftOutCount = leftOutCount
  }

  /// The failures, in the order of the contract.
  public var failures: [ConformanceFailure] { results.compactMap(\.outcome.failure) }

  /// The checks that could not be made, with the reasons.
  public var skipped: [(check: String, rule: ContractRule, reason: String)] {
    results.compactMap { result in
      if case .skipped(let reason) = result.outcome { (result.check, result.rule, reason) } else { nil }
    }
  }

  /// The checks that failed themselves, with the reasons.
  public var obstacles: [ConformanceObstacle] {
    results.compactMap { result in
      if case .couldNotRun(let reason) = result.outcome {
        ConformanceObstacle(check: result.check, reason: reason)
      } else {
        nil
      }
    }
  }

  /// How many checks the engine passed.
  public var passedCount: Int { results.count { $0.outcome == .passed } }

  /// Whether the engine failed no check, and no check failed itself.
  public var isConforming: Bool { failures.isEmpty && obstacles.isEmpty }

  /// Whether no check was left out that applies to the engine, by request or for lack of a child process. Only then does
  /// ``isConforming`` say that the engine keeps the contract.
  public var isComplete: Bool { results.count == applicableCount && leftOutCount == 0 }

  /// The rules that the engine breaks, in the order of the contract.
  public var brokenRules: [ContractRule] {
    let broken = Set(failures.map(\.rule))
    return ContractRule.allCases.filter(broken.contains)
  }
}

extension ConformanceReport: CustomStringConvertible {
  /// One line of figures, then one paragraph for each failure, with its proof, and one line for each check that could not
  /// run or was skipped.
  public var description: String {
    let figures =
      "\(name): passed \(passedCount) of \(applicableCount) checks, \(failures.count) failed, \(skipped.count) skipped, "
      + "\(obstacles.count) could not run"
    return
      ([figures] + failures.map { "  failed: \($0)" }
      + obstacles.map { "  could not run: \($0.check): \($0.reason)" }
      + skipped.map { "  skipped: \($0.check) (\($0.rule)): \($0.reason)" })
      .joined(separator: "\n")
  }
}
