import ConformanceKit
import StockroomCore

/// What the checks of several engines have found.
struct ConformanceResults: Sendable, Encodable {
  struct Engine: Sendable, Encodable {
    let name: String
    let title: String
    let capabilities: [String]
    let passed: Int
    let failed: Int
    let skipped: Int
    let checks: [Outcome]

    init(_ entry: EngineCatalogue.Entry, _ checks: [Outcome]) {
      name = entry.name
      title = entry.title
      capabilities = EngineCapabilities.named.filter { entry.capabilities.contains($0.capability) }.map(
        \.name)
      passed = checks.count { $0.status == .passed }
      failed = checks.count { $0.status == .failed }
      skipped = checks.count { $0.status == .skipped }
      self.checks = checks
    }
  }

  struct Outcome: Sendable, Encodable {
    enum Status: String, Encodable {
      case passed, failed, skipped
    }

    let check: String
    let rule: ContractRule
    let expectation: String
    let status: Status
    /// Why the check failed or was skipped.
    let reason: String?
    /// How long the check took.
    let seconds: Double

    init(_ check: ConformanceCheck, _ outcome: ConformanceOutcome, seconds: Double) {
      self.check = check.id
      rule = check.rule
      expectation = check.expectation
      self.seconds = seconds
      (status, reason) =
        switch outcome {
        case .passed: (.passed, nil)
        case .failed(let failure): (.failed, failure.description)
        case .skipped(let reason): (.skipped, reason)
        }
    }
  }

  let conforms: Bool
  let engines: [Engine]

  init(engines: [Engine]) {
    self.engines = engines
    conforms = engines.allSatisfy { $0.failed == 0 }
  }
}
