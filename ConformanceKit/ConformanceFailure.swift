/// What a check has found: the engine breaks a rule.
public struct ConformanceFailure: Error, Sendable, Hashable, Codable {
  /// The rule that is broken.
  public let rule: ContractRule
  /// The identifier of the check that found it, such as `write.overwrite-keeps-created-at`.
  public let check: String
  /// What the check expected, as a clause: "an overwrite keeps createdAt".
  public let expectation: String
  /// What happened instead, as a clause: "createdAt moved from … to …".
  public let actual: String
  /// Lines that show it happening, such as the shortest sequence of calls that does in Swift, or a timeline of calls. Nil if
  /// ``actual`` says it all.
  public let evidence: String?
  /// The seed that ``ConformanceBudget/seed`` has to be for the check to find this again.
  public let seed: UInt64
  /// How to make the check fail again, such as a command. ``ConformanceResults`` fills it in.
  public internal(set) var reproduction: String?

  /// One paragraph without line breaks: the rule, the expectation, what happened.
  public var paragraph: String {
    ("Rule \(rule) is broken (\(check)). Expected: \(expectation). But \(actual). "
      + "The rule says: \(rule.summary)").inOneLine
  }
}

/// A check itself failed, for lack of room for its directory, for instance. It says nothing about the engine.
public struct ConformanceCheckError: Error, Sendable, Hashable, CustomStringConvertible {
  /// The identifier of the check.
  public let check: String
  /// What went wrong.
  public let reason: String

  /// Both in one sentence.
  public var description: String { "The check \(check) could not run: \(reason)" }
}

extension ConformanceFailure: CustomStringConvertible {
  /// ``paragraph``, and below it ``evidence``, indented by four blanks.
  public var description: String {
    guard let evidence else { return paragraph }
    return paragraph + "\n\n" + evidence.indented(by: 4)
  }
}
