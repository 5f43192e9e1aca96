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
    let files = [page, results, chart].compactMap { $0?.target }
    if Set(files).count < files.count {
      throw ValidationError("--html and --write-results, with its chart, need a file each.")
    }
  }

  /// Throws the error that writing the files would throw.
  func check() throws {
    for file in [page, results, chart].compactMap(\.self) { try file.check() }
  }

  /// Writes or replaces the files. If the HTML page cannot be written, throws after the others have been written.
  func write(_ report: BenchmarkReport) throws {
    let writtenPage = Result<Void, any Error> { if let page { try page.write(report.html) } }
    try writeResults(report)
    try writtenPage.get()
  }

  private func writeResults(_ report: BenchmarkReport) throws {
    guard let results, let chart else { return }
    let headlines = report.headlinesMarkdown(chart: chart.url.lastPathComponent.asLink)
    let command = (["stockroom"] + CommandLine.arguments.dropFirst()).map(\.hidingPasswords.quotedForShell)
    try chart.write(report.headlineChart())
    try results.write(report.page(command: command.joined(separator: " "), headlines: headlines))
  }
}

extension String {
  /// The name of a file as the target of a Markdown link from a page in the same directory.
  var asLink: String {
    let link = addingPercentEncoding(withAllowedCharacters: .urlPathAllowed) ?? self
    // A parenthesis would end the link, and the text before a colon would be parsed as the scheme of a URL.
    return link.replacing("(", with: "%28").replacing(")", with: "%29").replacing(":", with: "%3A")
  }
}
