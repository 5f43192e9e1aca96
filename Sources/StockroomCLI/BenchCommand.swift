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
      All engines store the same records, and are measured one after another in every workload. The results of \
      all reads are verified. The table shows the median time of one operation and marks the fastest engine of each \
      workload; a difference within the spread of the measurements is marked as a tie. An engine that keeps nothing beyond \
      the process is not ranked beside those that do.

      After Ctrl-C the results of the repetitions so far are printed, except as JSON, and the exit status is that of the signal.

      Groups of workloads:
      \(Workload.groups.map { "  \($0.name): \($0.summary)" }.joined(separator: "\n"))
      """)

  @OptionGroup var engineOptions: EngineOptions
  @OptionGroup var benchmarkOptions: BenchmarkOptions
  @OptionGroup(title: "Files") var fileOptions: ReportFileOptions

  @Option(help: "The format of the results.")
  var format = OutputFormat.text

  @Flag(help: "Also shows latencies, processor time, memory, disk space and stalls.")
  var details = false

  @Option(
    help: ArgumentHelp(
      "An earlier report in JSON. Significant changes since then are shown after the report.",
      valueName: "file"))
  var baseline: String?

  @Flag(
    help: "With --baseline: exits with status 1 if something is slower, or if nothing can be compared.")
  var failIfSlower = false

  func validate() throws {
    if baseline?.isEmpty == true { throw ValidationError("The path for --baseline is empty.") }
    if failIfSlower, baseline == nil { throw ValidationError("--fail-if-slower needs a --baseline.") }
  }

  func run() async throws {
    let earlier = try earlierReport()
    try fileOptions.check()
    let report = try await engineOptions.withScratchDirectory { directory in
      try await Self.measure(engineOptions, benchmarkOptions, in: directory, format)
    }
    // Printed before the files are written, so that the results are shown even if a file cannot be written. An error of
    // printing, such as a closed pipe, is thrown only after the files have been written.
    let shown = Result<Void, any Error> {
      try writeToStandardOutput(try report.rendered(as: format))
      if details { try writeToStandardOutput(report.renderedDetails(as: format)) }
    }
    try fileOptions.write(report)
    try shown.get()
    guard let earlier else { return }
    let comparison = BenchmarkComparison(before: earlier, after: report)
    // The text contains names from the earlier report, which is an untrusted file, so its control characters are
    // escaped.
    let text = comparison.text.split(separator: "\n", omittingEmptySubsequences: false)
      .map { String($0).withoutControls }.joined(separator: "\n")
    // With JSON, standard output contains only the report, which may become the next baseline.
    if format == .json {
      writeToStandardError(text)
    } else {
      try writeToStandardOutput("\n" + text)
    }
    if failIfSlower, !comparison.slower.isEmpty || comparison.compared == 0 { throw ExitCode.failure }
  }

  private func earlierReport() throws -> BenchmarkReport? {
    guard let file = baseline.map(OutputFile.init) else { return nil }
    let bytes = try file.readBytes()
    do {
      return try BenchmarkReport(json: bytes)
    } catch is DecodingError {
      throw StorageError(
        .unsupported, "\(file.path) is not a report of `stockroom bench --format json`.")
    }
  }

  /// Runs the benchmark below `directory`, and shows progress. If it is interrupted, prints the results of the
  /// completed repetitions in the format, except as JSON, which could be mistaken for a complete report.
  static func measure(
    _ engineOptions: EngineOptions, _ benchmarkOptions: BenchmarkOptions, in directory: URL,
    _ format: OutputFormat
  ) async throws -> BenchmarkReport {
    let durability = engineOptions.durability
    let subjects = try engineOptions.usableEngines.map { engine in
      BenchmarkSubject(
        engine.title, worker: ServeCommand.benchmarkWorker(for: engine, durability),
        isElsewhere: engineOptions.isElsewhere(engine)
      ) { try await engine.open($0, durability) }
    }
    let runner = BenchmarkRunner(
      configuration: try benchmarkOptions.configuration(directory: directory, durability: durability))
    let line = ProgressLine()
    defer { line.clear() }
    let repetitions = benchmarkOptions.repetitions
    let partial = MutexProtected<(@Sendable () -> BenchmarkReport)?>(nil)
    return try await PartialOutput.printed {
      let report = partial.withLock({ $0 })?()
      let part = "\(report?.repetitions ?? 0) of \(repetitions) repetitions"
      line.clear()
      writeToStandardError("stockroom: interrupted after \(part)\n")
      guard let report, format != .json else { return }
      try writeToStandardOutput("Interrupted after \(part):\n\n" + report.rendered(as: format))
    } unlessEnds: {
      try await runner.run(subjects) {
        line.show($0.description)
      } afterRepetition: { report in
        partial.withLock { $0 = report }
      }
    }
  }
}

extension BenchmarkReport {
  /// The report in a format, with a newline at the end.
  func rendered(as format: OutputFormat) throws -> String {
    switch format {
    case .text: text
    case .markdown: markdown
    case .json: String(decoding: try json(), as: UTF8.self) + "\n"
    }
  }

  /// The quantities other than time, in a format. Empty for JSON, whose report contains them already.
  func renderedDetails(as format: OutputFormat) -> String {
    switch format {
    case .text: "\n" + details
    case .markdown: "\n" + detailsMarkdown
    case .json: ""
    }
  }
}
