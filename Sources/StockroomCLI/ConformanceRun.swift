import ConformanceKit
import Foundation
import StockroomCore

/// The checks that are made of the engines that were selected.
struct ConformanceRun: Sendable {
  private let engines: [(entry: EngineCatalogue.Entry, checks: [ConformanceCheck])]

  /// A run below a directory. Without names of checks or rules it makes all that apply.
  init(
    _ engines: [EngineCatalogue.Entry], durability: Durability, checks: [String] = [],
    rules: [ContractRule] = [], in directory: URL
  ) {
    self.engines = engines.map { engine in
      let suite = ConformanceSuite(
        engine.name, capabilities: engine.capabilities, workingDirectory: directory,
        child: .ofThisCommand(engine, durability)
      ) { try engine.open($0, durability) }
      let selected = suite.checks.filter {
        (checks.isEmpty || checks.contains($0.id)) && (rules.isEmpty || rules.contains($0.rule))
      }
      return (engine, selected)
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
  /// - Throws: `CancellationError` if the task was cancelled.
  func results() async throws -> ConformanceResults {
    let line = ProgressLine()
    defer { line.clear() }
    var results: [ConformanceResults.Engine] = []
    for (entry, checks) in engines {
      var outcomes: [ConformanceResults.Outcome] = []
      for check in checks {
        line.show("\(entry.name): check \(outcomes.count + 1) of \(checks.count), \(check.id)")
        let start = ContinuousClock.now
        let outcome = await check.outcome()
        let seconds = start.duration(to: .now) / .seconds(1)
        // A check that was cancelled says nothing about the engine.
        try Task.checkCancellation()
        outcomes.append(.init(check, outcome, seconds: seconds))
      }
      results.append(.init(entry, outcomes))
    }
    return ConformanceResults(engines: results)
  }
}
