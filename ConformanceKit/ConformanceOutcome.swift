/// The outcome of a check.
public enum ConformanceOutcome: Sendable, Hashable {
  /// The engine meets the expectation of the check.
  case passed
  /// The engine breaks the rule.
  case failed(ConformanceFailure)
  /// The check could not run here, for this reason. This says nothing about the engine.
  case skipped(String)
  /// The check itself failed, for this reason. This says nothing about the engine, but the cause should be
  /// investigated.
  case couldNotRun(String)

  /// The failure, if this is one.
  public var failure: ConformanceFailure? {
    if case .failed(let failure) = self { failure } else { nil }
  }
}

extension ConformanceOutcome: Codable {
  private enum CodingKeys: String, CodingKey {
    case status, failure, reason
  }

  /// Decodes what ``encode(to:)`` encodes.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    let status = try container.decode(String.self, forKey: .status)
    switch status {
    case "passed": self = .passed
    case "failed": self = .failed(try container.decode(ConformanceFailure.self, forKey: .failure))
    case "skipped": self = .skipped(try container.decode(String.self, forKey: .reason))
    case "could not run": self = .couldNotRun(try container.decode(String.self, forKey: .reason))
    default:
      throw DecodingError.dataCorruptedError(
        forKey: .status, in: container, debugDescription: "Unknown outcome: \(status).")
    }
  }

  /// Encodes a `status` of `passed`, `failed`, `skipped` or `could not run`, with the `failure` or the `reason`.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    switch self {
    case .passed: try container.encode("passed", forKey: .status)
    case .failed(let failure):
      try container.encode("failed", forKey: .status)
      try container.encode(failure, forKey: .failure)
    case .skipped(let reason):
      try container.encode("skipped", forKey: .status)
      try container.encode(reason, forKey: .reason)
    case .couldNotRun(let reason):
      try container.encode("could not run", forKey: .status)
      try container.encode(reason, forKey: .reason)
    }
  }
}
