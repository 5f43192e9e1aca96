import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines

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
  /// - Parameters:
  ///   - reproduction: Says how to make a failure happen again.
  ///   - jobs: How many checks of an engine are made at a time.
  ///   - processes: What makes them. Nil stands for this process.
  ///   - resume: Where the results are that need not be found again, and where the others are kept.
  /// - Throws: `CancellationError` if the task was cancelled.
  func results(
    reproduction: ConformanceResults.Reproduction? = nil, jobs: Int = 1,
    processes: ConformanceProcesses? = nil,
    resume: ResumeFile? = nil
  ) async throws -> ConformanceResults {
    try await CheckProgressLine.whileShown { line in
      var reports: [ConformanceReport] = []
      for (suite, checks) in engines {
        reports.append(
          await suite.run(only: Set(checks.map(\.id)), width: jobs) {
            line.show($0, of: suite.name)
          } result: { check in
            if let result = resume?.result(of: check.id, engine: suite.name) { return result }
            let result =
              if let processes {
                await processes.result(of: check, engine: EngineCatalog.name(titled: suite.name))
              } else {
                await check.result()
              }
            if !Task.isCancelled { resume?.add(result, engine: suite.name) }
            return result
          })
        // Checks that were cancelled say nothing about the engine.
        try Task.checkCancellation()
      }
      return ConformanceResults(reports, reproduction: reproduction)
    }
  }
}
