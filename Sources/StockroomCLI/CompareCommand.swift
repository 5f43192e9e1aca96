import ArgumentParser
import BenchmarkKit
import ConformanceKit
import Foundation
import StockroomCore

/// `stockroom compare`
struct CompareCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "compare",
    abstract: "Verifies the engines and races them: both tables.",
    discussion: """
      First holds every engine to the contract, as `stockroom conformance` does, then measures how fast they are, \
      as `stockroom bench` does.
      """)

  @OptionGroup var engineOptions: EngineOptions
  @OptionGroup var benchmarkOptions: BenchmarkOptions

  @Option(help: "How results are printed.")
  var format = OutputFormat.text

  private struct Comparison: Encodable {
    let conformance: ConformanceResults
    /// Nil if the benchmark failed.
    let benchmark: BenchmarkReport?
  }

  func run() async throws {
    let format = format
    let conformance = try await engineOptions.withScratchDirectory { directory in
      let conformance = try await ConformanceRun(try engineOptions.suites(in: directory))
        .results(reproduction: engineOptions.reproduction())
      switch format {
      case .text: try writeToStandardOutput("CONFORMANCE\n\n\(conformance.text)\nSPEED\n\n")
      case .markdown:
        try writeToStandardOutput("## Conformance\n\n\(conformance.markdown)\n## Speed\n\n")
      case .json: break
      }

      let benchmark: BenchmarkReport
      do {
        benchmark = try await BenchCommand.measure(engineOptions, benchmarkOptions, in: directory)
      } catch {
        // The other formats have printed what is known by now.
        if format == .json {
          try writeToStandardOutput(jsonText(Comparison(conformance: conformance, benchmark: nil)))
        }
        throw error
      }
      try writeToStandardOutput(
        try format == .json
          ? jsonText(Comparison(conformance: conformance, benchmark: benchmark))
          : benchmark.rendered(as: format))
      return conformance
    }
    if !conformance.isConforming { throw ExitCode.failure }
  }
}
