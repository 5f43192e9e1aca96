/// The results of a run of a suite.
///
/// ``ConformanceResults`` formats one report, or those of several engines side by side, as text, Markdown,
/// JSON or JUnit XML.
public struct ConformanceReport: Sendable, Hashable {
  /// A check and its outcome.
  public struct Result: Sendable, Hashable {
    /// The identifier of the check.
    public let check: String
    /// The rule that the check is about.
    public let rule: ContractRule
    /// What the check expects, as a clause.
    public let expectation: String
    /// The outcome.
    public let outcome: ConformanceOutcome
    /// How long it took, in seconds.
    public let seconds: Double
    /// How far the check got, if slow calls kept it from going as far as its level requires. Nil if it went
    /// all the way.
    public let shortfall: String?

    package init(
      check: String, rule: ContractRule, expectation: String, outcome: ConformanceOutcome, seconds: Double,
      shortfall: String? = nil
    ) {
      (self.check, self.rule, self.expectation) = (check, rule, expectation)
      (self.outcome, self.seconds, self.shortfall) = (outcome, seconds, shortfall)
    }
  }

  /// The name of the suite, which is that of the engine.
  public let name: String
  /// The names of the capabilities that the suite was given.
  public let capabilities: [String]
  /// The budget of the checks.
  public let budget: ConformanceBudget
  /// All requested checks of the level, in the order of the contract. Checks that were left out for lack of a
  /// ``ConformanceWorker`` count as skipped, and so do checks of a higher level that were requested by
  /// identifier.
  public let results: [Result]
  /// The number of checks of the level that apply to the engine, whether they were requested or not.
  public let applicableCount: Int
  /// The number of results that are checks left out because the suite has no ``ConformanceWorker``.
  public let leftOutCount: Int
  /// The number of checks that apply to the engine but only run from a higher level on, by level. They are
  /// not among the results.
  public let laterChecks: [ConformanceBudget.Level: Int]
  /// How long the run took, in seconds.
  public let seconds: Double

  init(
    name: String, capabilities: [String], budget: ConformanceBudget, results: [Result],
    applicableCount: Int? = nil, leftOutCount: Int = 0, laterChecks: [ConformanceBudget.Level: Int] = [:],
    seconds: Double
  ) {
    (self.name, self.capabilities, self.budget) = (name, capabilities, budget)
    (self.results, self.seconds) = (results, seconds)
    self.applicableCount = applicableCount ?? results.count
    (self.leftOutCount, self.laterChecks) = (leftOutCount, laterChecks)
  }

  /// The failures, in the order of the contract.
  public var failures: [ConformanceFailure] { results.compactMap(\.outcome.failure) }

  /// The checks that were skipped, with the reasons.
  public var skipped: [(check: String, rule: ContractRule, reason: String)] {
    results.compactMap { result in
      if case .skipped(let reason) = result.outcome { (result.check, result.rule, reason) } else { nil }
    }
  }

  /// The checks that could not run because of an error of their own, with the reasons.
  public var checkErrors: [ConformanceCheckError] {
    results.compactMap { result in
      if case .couldNotRun(let reason) = result.outcome {
        ConformanceCheckError(check: result.check, reason: reason)
      } else {
        nil
      }
    }
  }

  /// The number of checks that the engine passed.
  public var passedCount: Int { results.count { $0.outcome == .passed } }

  /// Whether the engine failed no check, and every check could run.
  public var isConforming: Bool { failures.isEmpty && checkErrors.isEmpty }

  /// Whether all checks of the level that apply to the engine were run: none was left out by request, for
  /// lack of a worker process or because the task was cancelled.
  public var isCompleteForLevel: Bool {
    results.count == applicableCount && leftOutCount == 0
      && !results.contains { $0.outcome == .skipped(ConformanceCheck.cancelled) }
  }

  /// Whether ``isCompleteForLevel`` is true and the level is at least ``ConformanceBudget/Level/standard``.
  /// Only then does ``isConforming`` mean that the engine follows the contract.
  public var isComplete: Bool { isCompleteForLevel && budget.level >= .standard }

  /// The rules that the engine breaks, in the order of the contract.
  public var brokenRules: [ContractRule] {
    let broken = Set(failures.map(\.rule))
    return ContractRule.allCases.filter(broken.contains)
  }
}

extension ConformanceReport: CustomStringConvertible {
  /// One line with the totals, then a paragraph for each failure, with its evidence, and a line for each
  /// check that could not run or was skipped.
  public var description: String {
    let figures =
      "\(name): passed \(passedCount) of \(applicableCount) checks, \(failures.count) failed, \(skipped.count) skipped, "
      + "\(checkErrors.count) could not run"
    return
      ([figures] + failures.map { "  failed: \($0)" }
      + checkErrors.map { "  could not run: \($0.check): \($0.reason)" }
      + skipped.map { "  skipped: \($0.check) (\($0.rule)): \($0.reason)" })
      .joined(separator: "\n")
  }
}

// MARK: - JSON

extension ConformanceReport: Codable {
  private enum CodingKeys: CodingKey {
    case name, capabilities, budget, checks, applicable, leftOut, laterChecks, seconds
    case passed, failed, skipped, couldNotRun
  }

  /// Decodes what ``encode(to:)`` encodes.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    self.init(
      name: try container.decode(String.self, forKey: .name),
      capabilities: try container.decode([String].self, forKey: .capabilities),
      budget: try container.decode(ConformanceBudget.self, forKey: .budget),
      results: try container.decode([Result].self, forKey: .checks),
      applicableCount: try container.decode(Int.self, forKey: .applicable),
      leftOutCount: try container.decode(Int.self, forKey: .leftOut),
      laterChecks: try container.decode([ConformanceBudget.Level: Int].self, forKey: .laterChecks),
      seconds: try container.decode(Double.self, forKey: .seconds))
  }

  /// Encodes the name, the capabilities, the budget, the `checks` with their results, and totals. Of these,
  /// `applicable` is the number of checks of the level that apply to the engine, `leftOut` that of the checks
  /// skipped for lack of a worker process, and `laterChecks` that of the checks that only run from a higher
  /// level on, by level.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    let tally = Tally(results)
    try container.encode(name, forKey: .name)
    try container.encode(capabilities, forKey: .capabilities)
    try container.encode(budget, forKey: .budget)
    try container.encode(results, forKey: .checks)
    try container.encode(applicableCount, forKey: .applicable)
    try container.encode(leftOutCount, forKey: .leftOut)
    try container.encode(laterChecks, forKey: .laterChecks)
    try container.encode(seconds, forKey: .seconds)
    try container.encode(tally.passed, forKey: .passed)
    try container.encode(tally.failed, forKey: .failed)
    try container.encode(tally.skipped, forKey: .skipped)
    try container.encode(tally.couldNotRun, forKey: .couldNotRun)
  }
}

extension ConformanceReport.Result: Codable {
  private enum CodingKeys: CodingKey {
    case check, rule, expectation, seconds, shortfall
  }

  /// Decodes what ``encode(to:)`` encodes.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    check = try container.decode(String.self, forKey: .check)
    rule = try container.decode(ContractRule.self, forKey: .rule)
    expectation = try container.decode(String.self, forKey: .expectation)
    seconds = try container.decode(Double.self, forKey: .seconds)
    shortfall = try container.decodeIfPresent(String.self, forKey: .shortfall)
    outcome = try ConformanceOutcome(from: decoder)
  }

  /// Encodes the outcome next to the other properties: its `status`, and the `failure` or the `reason`.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(check, forKey: .check)
    try container.encode(rule, forKey: .rule)
    try container.encode(expectation, forKey: .expectation)
    try container.encode(seconds, forKey: .seconds)
    try container.encodeIfPresent(shortfall, forKey: .shortfall)
    try outcome.encode(to: encoder)
  }
}
