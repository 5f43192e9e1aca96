import ConformanceKit
import Foundation
import StockroomCore

/// The checks that are made of some engines.
struct ConformanceRun: Sendable {
  private let engines: [(suite: ConformanceSuite, checks: [ConformanceCheck])]

  /// Without names of checks or rules it makes all that apply.
  init(_ suites: [ConformanceSuite], checks: [String] = [], rules: [ContractRule] = []) {
    engines = suites.map { suite in
      let selected = suite.checks.filter {
        (checks.isEmpty || checks.contains($0.id)) && (rules.isEmpty || rules.contains($0.rule))
      }
      return (suite, selected)
    }
  }

  /// Every check that is made of some engine, once, in the order of the contract.
  var listedChecks: [ConformanceCheck] {
    var seen: Set<String> = []
    let checks = engines.flatMap(\.checks).filter { seen.insert($0.id).inserted }
    return ContractRule.allCases.flatMap { rule in checks.filter { $0.rule == rule } }
  }

  /// Makes the checks, engine by engine, and shows progress.
  ///
  /// - Parameter reproduction: Says how to make a failure happen again.
  /// - Throws: `CancellationError` if the task was cancelled.
  func results(reproduction: ConformanceResults.Reproduction? = nil) async throws -> ConformanceResults {
    try await CheckProgressLine.whileShown { line in
      var reports: [ConformanceReport] = []
      for (suite, checks) in engines {
        reports.append(
          await suite.run(only: Set(checks.map(\.id))) { line.show($0, of: suite.name) })
        // Checks that were cancelled say nothing about the engine.
        try Task.checkCancellation()
      }
      return ConformanceResults(reports, reproduction: reproduction)
    }
  }
}
