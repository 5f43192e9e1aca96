import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines

/// The selected checks of some engines.
struct ConformanceRun: Sendable {
  private let engines: [(suite: ConformanceSuite, checks: [ConformanceCheck])]

  /// Selects the checks with these identifiers and rules. An empty list selects all.
  init(_ suites: [ConformanceSuite], checks: [String] = [], rules: [ContractRule] = []) {
    engines = suites.map { suite in
      let selected = suite.checks.filter {
        (checks.isEmpty || checks.contains($0.id)) && (rules.isEmpty || rules.contains($0.rule))
      }
      return (suite, selected)
    }
  }

  /// Every selected check, once, in the order of the contract.
  var listedChecks: [ConformanceCheck] {
    var seen: Set<String> = []
    let checks = engines.flatMap(\.checks).filter { seen.insert($0.id).inserted }
    return ContractRule.allCases.flatMap { rule in checks.filter { $0.rule == rule } }
  }

  /// Runs the checks, engine by engine, and shows progress.
  ///
  /// - Parameters:
  ///   - reproduction: Returns how to reproduce a failure.
  ///   - jobs: The number of checks of an engine that run at the same time.
  ///   - processes: Runs each check in a child process. Nil runs all checks in this process.
  ///   - resume: Has the results of earlier checks, which are not run again, and stores the new results.
  ///   - printPartial: Prints the results so far if the command is interrupted after some checks have ended.
  /// - Throws: `CancellationError` if the task was cancelled.
  func results(
    reproduction: ConformanceResults.Reproduction? = nil, jobs: Int = 1,
    processes: ConformanceProcesses? = nil,
    resume: ResumeFile? = nil,
    ifInterrupted printPartial: @escaping @Sendable (ConformanceResults) throws -> Void = { _ in }
  ) async throws -> ConformanceResults {
    let partial = PartialResults()
    return try await CheckProgressLine.whileShown { line in
      try await PartialOutput.printed {
        line.clear()
        let ended = partial.count
        let total = engines.reduce(0) { $0 + $1.checks.count }
        writeToStandardError("stockroom: interrupted after \(ended) of \(total) checks\n")
        if ended == 0 { return }
        try printPartial(
          ConformanceResults(
            engines.map { partial.report(of: $0.suite, $0.checks) }, reproduction: reproduction))
      } unlessEnds: {
        var reports: [ConformanceReport] = []
        for (suite, checks) in engines {
          reports.append(
            await suite.run(only: Set(checks.map(\.id)), width: jobs) {
              line.show($0, of: suite.name)
            } result: { check in
              let made = await result(of: check, suite, processes, resume)
              if !Task.isCancelled { partial.add(made, engine: suite.name) }
              return made
            })
          // Checks that were cancelled say nothing about the engine.
          try Task.checkCancellation()
        }
        return ConformanceResults(reports, reproduction: reproduction)
      }
    }
  }

  private func result(
    of check: ConformanceCheck, _ suite: ConformanceSuite, _ processes: ConformanceProcesses?,
    _ resume: ResumeFile?
  ) async -> ConformanceReport.Result {
    if let result = resume?.result(of: check.id, engine: suite.name) { return result }
    let result =
      if let processes {
        await processes.result(of: check, engine: EngineCatalog.name(titled: suite.name))
      } else {
        await check.result()
      }
    if !Task.isCancelled { resume?.add(result, engine: suite.name) }
    return result
  }
}
