/// The verdict that an engine breaks a rule.
public struct ConformanceFailure: Error, Sendable, Hashable, Codable {
  /// The rule that is broken.
  public let rule: ContractRule
  /// The identifier of the check that found it, such as `write.overwrite-keeps-created-at`.
  public let check: String
  /// What the check expected, as a clause: "an overwrite keeps createdAt".
  public let expectation: String
  /// What happened instead, as a clause: "createdAt moved from … to …".
  public let happened: String
}

extension ConformanceFailure: CustomStringConvertible {
  /// One paragraph: the rule, the expectation, what happened.
  public var description: String {
    "Rule \(rule) is broken (\(check)). Expected: \(expectation). But \(happened). "
      + "The rule says: \(rule.sentence)"
  }
}
