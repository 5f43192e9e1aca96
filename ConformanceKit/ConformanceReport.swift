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
  /// Every check of the suite, in the order of the contract.
  public let results: [Result]
  /// How long the run took, in seconds.
  public let seconds: Double

  /// The failures, in the order of the contract.
  public var failures: [ConformanceFailure] { results.compactMap(\.outcome.failure) }

  /// The checks that could not be made, with the reasons.
  public var skipped: [(check: String, rule: ContractRule, reason: String)] {
    results.compactMap { result in
      if case .skipped(let reason) = result.outcome { (result.check, result.rule, reason) } else { nil }
    }
  }

  /// How many checks the engine passed.
  public var passedCount: Int { results.count { $0.outcome == .passed } }

  /// Whether the engine failed no check.
  public var isConforming: Bool { failures.isEmpty }

  /// The rules that the engine breaks, in the order of the contract.
  public var brokenRules: [ContractRule] {
    let broken = Set(failures.map(\.rule))
    return ContractRule.allCases.filter(broken.contains)
  }
}

extension ConformanceReport: CustomStringConvertible {
  /// One line of figures, then one paragraph for each failure, with its proof, and one line for each check that was
  /// skipped.
  public var description: String {
    let figures =
      "\(name): \(passedCount) checks passed, \(failures.count) failed, \(skipped.count) skipped"
    return
      ([figures] + failures.map { "  failed: \($0)" }
      + skipped.map { "  skipped: \($0.check) (\($0.rule)): \($0.reason)" })
      .joined(separator: "\n")
  }
}
