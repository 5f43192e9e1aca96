import ConformanceKit
import Foundation
import StockroomCore

/// The checks that are made of the engines that were selected.
struct ConformanceRun: Sendable {
  private let engines: [(suite: ConformanceSuite, checks: [ConformanceCheck])]
  private let reproduction: ConformanceResults.Reproduction

  /// A run below a directory. Without names of checks or rules it makes all that apply.
  init(
    _ engines: [EngineCatalogue.Entry], options: EngineOptions, effort: EffortOptions? = nil,
    checks: [String] = [], rules: [ContractRule] = [], in directory: URL
  ) {
    let durability = options.durability
    self.engines = engines.map { engine in
      let suite = ConformanceSuite(
        engine.title, capabilities: engine.capabilities(at: durability), workingDirectory: directory,
        effort: effort?.effort ?? ConformanceEffort(), child: .ofThisCommand(engine, durability)
      ) { try engine.open($0, durability) }
      let selected = suite.checks.filter {
        (checks.isEmpty || checks.contains($0.id)) && (rules.isEmpty || rules.contains($0.rule))
      }
      return (suite, selected)
    }
    let names = Dictionary(engines.map { ($0.title, $0.name) }) { first, _ in first }
    let surroundings = options.surroundings
    reproduction = { report, failure in
      let arguments =
        ["--engine", names[report.name] ?? report.name, "--check", failure.check]
        + (effort?.arguments(seed: failure.seed) ?? ["--seed", "\(failure.seed)"]) + surroundings
      return "stockroom conformance " + arguments.map(\.quotedForShell).joined(separator: " ")
    }
  }

  /// The checks of each engine, whichever were selected.
  var suites: [ConformanceSuite] { engines.map(\.suite) }

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

extension EngineOptions {
  /// The options that decide where and how the engines are opened, as they are written, unless they are as usual.
  fileprivate var surroundings: [String] {
    (durability == .full ? [] : ["--durability", durability.rawValue])
      + (directory.map { ["--directory", $0] } ?? [])
  }
}

extension String {
  /// The text as one word of a command line.
  fileprivate var quotedForShell: String {
    let isPlain =
      !isEmpty
      && utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"): true
        default: "/._-".utf8.contains(byte)
        }
      }
    return isPlain ? self : "'" + replacing("'", with: #"'\''"#) + "'"
  }
}
