import ArgumentParser
import BenchmarkKit
import ConformanceKit
import Foundation
import StockroomCore

/// `stockroom compare`
struct CompareCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "compare",
    abstract: "Runs the conformance checks on every engine, then compares their speed.",
    discussion: """
      First checks every engine against the contract, as `stockroom conformance` does, then measures their speed, \
      as `stockroom bench` does: two to ten minutes for each engine, in a release build, and a minute of benchmarks.
      """)

  @OptionGroup var engineOptions: EngineOptions
  @OptionGroup var benchmarkOptions: BenchmarkOptions
  @OptionGroup var checkOptions: CheckOptions

  @Option(
    help: ArgumentHelp(
      "The level of the checks: see 'stockroom conformance --help'.", valueName: "quick|standard|exhaustive"))
  var level = ConformanceBudget.Level.standard

  @Option(help: "The format of the results.")
  var format = OutputFormat.text

  private struct Comparison: Encodable {
    let conformance: ConformanceResults
    /// Nil if the benchmark failed, or if it has not begun.
    let benchmark: BenchmarkReport?
  }

  private var budgetOptions: BudgetOptions {
    get throws { try BudgetOptions.parse(["--level", "\(level)"]) }
  }

  func validate() throws {
    // The list of checks does not depend on the directory.
    let anywhere = FileManager.default.temporaryDirectory
    try checkOptions.validate(
      for: engineOptions.suites(of: try engineOptions.engines, budget: budgetOptions.budget, in: anywhere),
      at: level)
  }

  func run() async throws {
    let (format, budgetOptions) = (format, try budgetOptions)
    let conformance = try await engineOptions.withScratchDirectory { directory in
      let conformance = try await checkOptions.nonemptyRun(
        of: engineOptions.suites(
          of: try engineOptions.usableEngines, budget: budgetOptions.budget, in: directory)
      )
      .results(reproduction: engineOptions.reproduction(budgetOptions)) {
        try writeToStandardOutput(
          Self.checksText($0, format) + Self.benchmarkText(nil, after: $0, format))
      }
      try writeToStandardOutput(Self.conformanceText(conformance, format))

      // After a signal, the command waits for this work no matter how busy the machine is. Otherwise the results of the
      // checks could be lost.
      let benchmark = try await CleaningUp.awaited {
        do {
          return try await BenchCommand.measure(engineOptions, benchmarkOptions, in: directory, format)
        } catch {
          // The other formats have printed the results of the checks already.
          if format == .json {
            try writeToStandardOutput(Self.benchmarkText(nil, after: conformance, format))
          }
          throw error
        }
      }
      try writeToStandardOutput(Self.benchmarkText(benchmark, after: conformance, format))
      return conformance
    }
    if !conformance.isConforming { throw ExitCode.failure }
  }

  /// The text that is printed after the checks. Empty for JSON, which is printed as one object at the end.
  static func conformanceText(_ conformance: ConformanceResults, _ format: OutputFormat) -> String {
    switch format {
    case .text: checksText(conformance, format) + "\nSPEED\n\n"
    case .markdown: checksText(conformance, format) + "\n## Speed\n\n"
    case .json: ""
    }
  }

  private static func checksText(_ conformance: ConformanceResults, _ format: OutputFormat) -> String {
    switch format {
    case .text: "CONFORMANCE\n\n\(conformance.text)"
    case .markdown: "## Conformance\n\n\(conformance.markdown)"
    case .json: ""
    }
  }

  /// The text that is printed after the benchmark. In JSON it includes the results of the checks.
  ///
  /// - Parameter benchmark: Nil if the benchmark failed, or if it has not begun.
  static func benchmarkText(
    _ benchmark: BenchmarkReport?, after conformance: ConformanceResults, _ format: OutputFormat
  ) throws -> String {
    if format == .json { return try jsonText(Comparison(conformance: conformance, benchmark: benchmark)) }
    return try benchmark?.rendered(as: format) ?? ""
  }
}
