#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension ConformanceResults: Encodable {
  /// Encodes whether all is well as `conforms`, which is null if nothing failed but not every check was made that applies
  /// to the engines, and for each of the `engines` its name, capabilities, effort, figures and `checks`, each with its
  /// `status` of `passed`, `failed`, `skipped` or `could not run`. Of the figures, `applicable` counts the checks that apply
  /// to the engine and `leftOut` those that were skipped for lack of a child process.
  public func encode(to encoder: any Encoder) throws {
    try EncodedResults(
      conforms: reports.allSatisfy(\.failures.isEmpty) ? (isConforming && isComplete ? true : nil) : false,
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
  let conforms: Bool?
  let engines: [EncodedEngine]

  private enum CodingKeys: CodingKey { case conforms, engines }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    // Null, where what is made for the type would leave it out.
    try container.encode(conforms, forKey: .conforms)
    try container.encode(engines, forKey: .engines)
  }
}

private struct EncodedEngine: Encodable {
  let name: String
  let capabilities: [String]
  let effort: EncodedEffort
  let passed: Int
  let failed: Int
  let skipped: Int
  let couldNotRun: Int
  let applicable: Int
  let leftOut: Int
  let seconds: Double
  let checks: [EncodedCheck]

  init(_ report: ConformanceReport, reproduction: (ConformanceFailure) -> String) {
    let tally = Tally(report.results)
    (passed, failed, skipped) = (tally.passed, tally.failed, tally.skipped)
    couldNotRun = tally.couldNotRun
    (applicable, leftOut) = (report.applicableCount, report.leftOutCount)
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
    case .couldNotRun(let reason):
      status = "could not run"
      self.reason = reason
    case .failed(let failure):
      status = "failed"
      (reason, brokenRule, proof) = (failure.paragraph, failure.rule, failure.proof)
      (seed, self.reproduction) = (failure.seed, reproduction(failure))
    }
  }
}
