import ArgumentParser
import BenchmarkKit
import Foundation
import StockroomCore

/// `stockroom bench`
struct BenchCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "bench",
    abstract: "Measures how fast the engines are on this machine.",
    discussion: """
      All engines store the same records and take turns at every workload. What they answer is verified. The \
      table has the median time of one operation and marks the fastest engine of each workload; a difference \
      within the spread of the measurements is marked as a tie.

      Workloads:
      \(Workload.all.map { "  \($0.name): \($0.summary)" }.joined(separator: "\n"))
      """)

  @OptionGroup var engineOptions: EngineOptions
  @OptionGroup var benchmarkOptions: BenchmarkOptions

  @Option(help: "How results are printed.")
  var format = OutputFormat.text

  func run() async throws {
    let report = try await engineOptions.withScratchDirectory { directory in
      try await Self.measure(engineOptions, benchmarkOptions, in: directory)
    }
    try writeToStandardOutput(try report.rendered(as: format))
  }

  /// Runs the benchmark below the directory, and shows progress.
  static func measure(
    _ engineOptions: EngineOptions, _ benchmarkOptions: BenchmarkOptions, in directory: URL
  ) async throws -> BenchmarkReport {
    let durability = engineOptions.durability
    let subjects = try engineOptions.engines.map { engine in
      BenchmarkSubject(engine.title) { try engine.open($0, durability) }
    }
    let runner = BenchmarkRunner(
      configuration: try benchmarkOptions.configuration(directory: directory, durability: durability))
    let line = ProgressLine()
    defer { line.clear() }
    return try await runner.run(subjects) { line.show($0.description) }
  }
}

extension BenchmarkReport {
  /// The report in a format, ending with the end of a line.
  func rendered(as format: OutputFormat) throws -> String {
    switch format {
    case .text: text
    case .markdown: markdown
    case .json: String(decoding: try json(), as: UTF8.self) + "\n"
    }
  }
}
