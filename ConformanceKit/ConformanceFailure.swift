/// A violation of a rule, found by a check.
public struct ConformanceFailure: Error, Sendable, Hashable, Codable {
  /// The rule that the engine breaks.
  public let rule: ContractRule
  /// The identifier of the check that found the failure, such as `write.overwrite-keeps-created-at`.
  public let check: String
  /// What the check expected, as a clause: "an overwrite keeps createdAt".
  public let expectation: String
  /// What happened instead, as a clause: "createdAt moved from … to …".
  public let actual: String
  /// Lines that show the failure, such as the shortest sequence of calls that reproduces it, as Swift code,
  /// or a timeline of calls. Nil if ``actual`` is enough.
  public let evidence: String?
  /// The value of ``ConformanceBudget/seed`` with which the check finds this failure again.
  public let seed: UInt64
  /// How to reproduce the failure, such as a command. ``ConformanceResults`` sets it.
  public internal(set) var reproduction: String?

  /// The rule, the expectation and what happened, in one paragraph without line breaks.
  public var paragraph: String {
    ("Rule \(rule) is broken (\(check)). Expected: \(expectation). But \(actual). "
      + "The rule says: \(rule.summary)").inOneLine
  }
}

/// An error of a check itself, for instance because there is no space for its directory. It says nothing
/// about the engine.
public struct ConformanceCheckError: Error, Sendable, Hashable, CustomStringConvertible {
  /// The identifier of the check.
  public let check: String
  /// What went wrong.
  public let reason: String

  /// The check and the reason in one sentence.
  public var description: String { "The check \(check) could not run: \(reason)" }
}

extension ConformanceFailure: CustomStringConvertible {
  /// ``paragraph``, followed by ``evidence``, indented by four spaces.
  public var description: String {
    guard let evidence else { return paragraph }
    return paragraph + "\n\n" + evidence.indented(by: 4)
  }
}
