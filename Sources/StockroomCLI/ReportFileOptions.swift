import ArgumentParser
import BenchmarkKit
import Foundation
import StockroomCore

/// The options of the files that a benchmark's report is written to.
struct ReportFileOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "Where to write the report as an HTML page with charts, which needs no network.", valueName: "file"))
  var html: String?

  @Option(
    help: ArgumentHelp(
      "Where to write the report as a page of Markdown. Its chart is written beside it, as SVG.",
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

  /// Writes what was asked for, each file in place of what was there.
  ///
  /// - Parameter apart: The subjects that keep nothing, and so are not in the race for the fastest.
  func write(_ report: BenchmarkReport, apart: Set<String>) throws {
    try page?.write(report.html)
    guard let results, let chart else { return }
    let name = chart.url.lastPathComponent
    let headlines = report.headlinesMarkdown(
      chart: name.addingPercentEncoding(withAllowedCharacters: .urlPathAllowed) ?? name, apart: apart)
    let command = (["stockroom"] + CommandLine.arguments.dropFirst()).map(\.quotedForShell)
    try chart.write(report.headlineChart)
    try results.write(
      report.page(
        command: command.joined(separator: " "), headlines: MarkedSection.results.around(headlines),
        apart: apart))
    if let summary { try MarkedSection.results.write(headlines, to: summary) }
  }
}

extension OutputFile {
  /// What two paths of one file share.
  fileprivate var identity: URL {
    url.deletingLastPathComponent().resolvingSymlinksInPath().standardizedFileURL
      .appending(path: url.lastPathComponent)
  }
}
