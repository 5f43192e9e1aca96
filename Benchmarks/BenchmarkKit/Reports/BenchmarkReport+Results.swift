#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

/// The report as a page that is kept: what was measured where, the short of it as a chart and a table, and all of it.
extension BenchmarkReport {
  /// What most people look for first, if it was measured.
  private static let headlines = [
    "write-one", "write-concurrent-64", "write-batch-10000", "read-one", "read-all", "scan",
    "load-10000-objects", "write-5000-objects",
  ]

  /// The workloads of the short version: the headlines, or the first ones if there is none of them.
  private var headlines: [WorkloadDescription] {
    let found = workloads.filter { Self.headlines.contains($0.name) }
    return found.isEmpty ? Array(workloads.prefix(Self.headlines.count)) : found
  }

  /// The throughput of the headlines as an SVG file that any page can show as an image, on light and on dark.
  public var headlineChart: String {
    ChartSheet(
      title:
        "Operations per second at the median: bars begin at zero, a bar with a gap is longer than it is drawn.",
      drawings: headlines.compactMap(throughputChart)
    ).svg
  }

  /// The short version in GitHub's Markdown: the chart, and a table of times.
  ///
  /// - Parameters:
  ///   - chart: The path of ``headlineChart``, from the page.
  ///   - apart: Subjects that are shown but not in the race for the fastest: those that keep nothing, say.
  public func headlinesMarkdown(chart: String, apart: Set<String> = []) -> String {
    let race = apart.isEmpty ? "" : " but \(subjects.filter(apart.contains).joined(separator: " and "))"
    return [
      "![Operations per second, workload by workload](\(chart))",
      table(\.time, of: headlines, apart: apart, fastest: { "**\($0)**" }).markdown,
      "Time of one operation at the median: \(conditions). In bold: the fastest\(race); ≈ is as fast as that, as far as "
        + "the spread lets one say.",
    ].joined(separator: "\n\n")
  }

  /// A page in GitHub's Markdown.
  ///
  /// - Parameters:
  ///   - command: What makes the page again.
  ///   - headlines: What the page begins with: ``headlinesMarkdown(chart:apart:)``, for instance.
  ///   - apart: As there.
  public func page(command: String, headlines: String, apart: Set<String> = []) -> String {
    let sections: [(title: String, body: String)] = [
      ("In short", headlines),
      (
        "Time of one operation",
        "The median, and half the spread of \(repetitionsText).\n\n"
          + table(\.timeAndSpread, apart: apart, fastest: { "**\($0)**" }).markdown
      ),
      (
        "Operations per second",
        table(\.throughput, apart: apart, fastest: { "**\($0)**" }).markdown
      ),
      ("Besides time", detailsMarkdown.trimmingCharacters(in: .newlines)),
      (
        "What an operation is",
        workloads.map { "- `\($0.name)`: \(explanation(of: $0))" }.joined(separator: "\n")
      ),
    ]
    return
      (["# Results\n\nMade by this command:\n\n```\n\(command)\n```\n\n\(setting.markdown)"]
      + sections.map { "## \($0.title)\n\n\($0.body)" }).joined(separator: "\n\n") + "\n"
  }

  /// What the figures depend on, in a line.
  private var conditions: String {
    [
      recordsText, durability.map { "durability \($0)" },
      "\(machine.cores) cores of \(machine.processor ?? machine.architecture)", fileSystem,
    ].compactMap(\.self).joined(separator: ", ")
  }

  /// What the figures depend on, as a table.
  private var setting: TextTable {
    let rows: [(String, String?)] = [
      ("system", machine.operatingSystem),
      ("processor", machine.processor.map { "\($0), \(machine.architecture)" } ?? machine.architecture),
      ("cores", "\(machine.cores)"),
      ("memory", Units.bytes(machine.memory)),
      ("file system", fileSystem),
      ("Swift", machine.swift + (machine.isOptimized ? "" : ", **not optimised**")),
      ("software", software?.joined(separator: ", ")),
      ("records", recordsText),
      ("seed", "\(seed)"),
      ("durability", durability),
      ("repetitions", "\(repetitions), after a warm-up"),
      ("date", date.formatted(.iso8601)),
    ]
    return TextTable(
      header: ["what", "with"], rows: rows.compactMap { name, value in value.map { [name, $0] } },
      wordColumns: 2)
  }
}
