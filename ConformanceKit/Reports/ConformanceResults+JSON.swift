#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension ConformanceResults: Encodable {
  /// Encodes whether all is well as `conforms`, and for each of the `engines` its name, capabilities, effort, figures
  /// and `checks`, each with its `status` of `passed`, `failed` or `skipped`.
  public func encode(to encoder: any Encoder) throws {
    try EncodedResults(
      conforms: isConforming,
      engines: reports.map { report in EncodedEngine(report) { reproduction(report, $0) } }
    ).encode(to: encoder)
  }

  /// The results as a JSON object with its keys in alphabetical order, ending with the end of a line.
  public func json() throws -> Data {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    return try encoder.encode(self) + Data("\n".utf8)
  }
}

private struct EncodedResults: Encodable {
  let conforms: Bool
  let engines: [EncodedEngine]
}

private struct EncodedEngine: Encodable {
  let name: String
  let capabilities: [String]
  let effort: EncodedEffort
  let passed: Int
  let failed: Int
  let skipped: Int
  let seconds: Double
  let checks: [EncodedCheck]

  init(_ report: ConformanceReport, reproduction: (ConformanceFailure) -> String) {
    let tally = Tally(report.results)
    (passed, failed, skipped) = (tally.passed, tally.failed, tally.skipped)
    (name, capabilities, seconds) = (report.name, report.capabilities, report.seconds)
    effort = EncodedEffort(report.effort)
    checks = report.results.map { EncodedCheck($0, reproduction: reproduction) }
  }
}

private struct EncodedEffort: Encodable {
  let seed: UInt64
  let operations: Int
  let seconds: Double?
  let kills: Int
  let powerCuts: Int?
  let damages: Int

  init(_ effort: ConformanceEffort) {
    (seed, operations, kills) = (effort.seed, effort.operations, effort.kills)
    (powerCuts, damages) = (effort.powerCuts, effort.damages)
    seconds = effort.duration?.inSeconds
  }
}

private struct EncodedCheck: Encodable {
  let check: String
  let rule: ContractRule
  let expectation: String
  let status: String
  let seconds: Double
  /// Why the check failed or was skipped.
  var reason: String?
  /// The rule that is broken, which may be another than the one that the check is about.
  var brokenRule: ContractRule?
  var proof: String?
  var seed: UInt64?
  var reproduction: String?

  init(_ result: ConformanceReport.Result, reproduction: (ConformanceFailure) -> String) {
    (check, rule, expectation) = (result.check, result.rule, result.expectation)
    seconds = result.seconds
    switch result.outcome {
    case .passed: status = "passed"
    case .skipped(let reason):
      status = "skipped"
      self.reason = reason
    case .failed(let failure):
      status = "failed"
      (reason, brokenRule, proof) = (failure.paragraph, failure.rule, failure.proof)
      (seed, self.reproduction) = (failure.seed, reproduction(failure))
    }
  }
}
