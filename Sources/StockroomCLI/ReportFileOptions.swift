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

  private var page: OutputFile? { html.map(OutputFile.init) }
  private var results: OutputFile? { writeResults.map(OutputFile.init) }
  private var chart: OutputFile? { results?.beside(withExtension: "svg") }

  func validate() throws {
    for (option, path) in [("--html", html), ("--write-results", writeResults)] where path?.isEmpty == true {
      throw ValidationError("The path for \(option) is empty.")
    }
    if let results, results.url.pathExtension != "md" {
      throw ValidationError(
        "--write-results writes Markdown: its file ends with .md, as \(results.path) does not.")
    }
    let files = [page, results, chart].compactMap { $0?.identity }
    if Set(files).count < files.count {
      throw ValidationError("--html and --write-results, with its chart, need a file each.")
    }
  }

  /// Throws what writing would throw.
  func check() throws {
    for file in [page, results, chart].compactMap(\.self) { try file.check() }
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
      report.page(command: command.joined(separator: " "), headlines: headlines, apart: apart))
  }
}

extension OutputFile {
  /// What two paths of one file share.
  fileprivate var identity: URL {
    url.deletingLastPathComponent().resolvingSymlinksInPath().standardizedFileURL
      .appending(path: url.lastPathComponent)
  }
}
