import ArgumentParser
import BenchmarkKit
import Foundation
import StockroomCore

/// The options for the files of a benchmark's report.
struct ReportFileOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "Writes the report as a self-contained HTML page with charts.", valueName: "file"))
  var html: String?

  @Option(
    help: ArgumentHelp(
      "Writes the report as a page of Markdown, and its chart beside it, as SVG.",
      valueName: "file.md"))
  var writeResults: String?

  @Option(
    help: ArgumentHelp(
      "With --write-results: puts the chart and the table that the page begins with into a text beside it too, between "
        + "the lines \(MarkedSection.results.begin) and \(MarkedSection.results.end).",
      valueName: "file"))
  var writeSummary: String?

  private var page: OutputFile? { html.map(OutputFile.init) }
  private var results: OutputFile? { writeResults.map(OutputFile.init) }
  private var chart: OutputFile? { results?.beside(withExtension: "svg") }
  private var summary: OutputFile? { writeSummary.map(OutputFile.init) }

  func validate() throws {
    let paths = [("--html", html), ("--write-results", writeResults), ("--write-summary", writeSummary)]
    for (option, path) in paths where path?.isEmpty == true {
      throw ValidationError("The path for \(option) is empty.")
    }
    if let results, results.url.pathExtension != "md" {
      throw ValidationError(
        "--write-results writes Markdown: its file ends with .md, as \(results.path) does not.")
    }
    let files = [page, results, chart, summary].compactMap { $0?.identity }
    if Set(files).count < files.count {
      throw ValidationError("--html, --write-results, with its chart, and --write-summary need a file each.")
    }
    guard let summary else { return }
    guard let results else {
      throw ValidationError("--write-summary needs --write-results, whose chart it shows.")
    }
    if summary.identity.deletingLastPathComponent() != results.identity.deletingLastPathComponent() {
      throw ValidationError(
        "--write-summary and --write-results need files in the same directory, as they show one chart.")
    }
  }

  /// Throws what writing would throw.
  func check() throws {
    for file in [page, results, chart].compactMap(\.self) { try file.check() }
    if let summary { try MarkedSection.results.check(summary) }
  }

  /// Writes or replaces the files.
  ///
  /// - Parameter unranked: The subjects that are never marked as the fastest.
  func write(_ report: BenchmarkReport, unranked: Set<String>) throws {
    try page?.write(report.html)
    guard let results, let chart else { return }
    let name = chart.url.lastPathComponent
    let headlines = report.headlinesMarkdown(
      chart: name.addingPercentEncoding(withAllowedCharacters: .urlPathAllowed) ?? name, unranked: unranked)
    let command = (["stockroom"] + CommandLine.arguments.dropFirst()).map(\.quotedForShell)
    try chart.write(report.headlineChart)
    try results.write(
      report.page(
        command: command.joined(separator: " "), headlines: MarkedSection.results.around(headlines),
        unranked: unranked))
    if let summary { try MarkedSection.results.write(headlines, to: summary) }
  }
}

extension OutputFile {
  /// Equal for two paths of the same file.
  fileprivate var identity: URL {
    url.deletingLastPathComponent().resolvingSymlinksInPath().standardizedFileURL
      .appending(path: url.lastPathComponent)
  }
}
