#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomKitSupport

/// The report as a page for a repository: a summary with a chart, then all tables.
extension BenchmarkReport {
  /// The names of the workloads in the summary.
  private static let headlines = [
    "write-one", "write-concurrent-64", "write-batch-10000", "read-one", "read-all", "scan",
    "load-10000-objects", "write-5000-objects",
  ]

  /// The workloads of the summary; the first ones if none of the usual ones was measured.
  private var headlines: [WorkloadDescription] {
    let found = workloads.filter { Self.headlines.contains($0.name) }
    return found.isEmpty ? Array(workloads.prefix(Self.headlines.count)) : found
  }

  /// The throughput in the workloads of the summary as an SVG file for light and dark backgrounds.
  ///
  /// - Parameter unranked: As in ``headlinesMarkdown(chart:unranked:)``.
  public func headlineChart(unranked: Set<String> = []) -> String {
    ChartSheet(
      title:
        "Operations per second at the median. Bars begin at zero; a bar with a gap is cut.",
      drawings: headlines.compactMap { throughputChart($0, unranked: unranked) }
    ).svg
  }

  /// The summary in GitHub's Markdown: the chart, and a table of times.
  ///
  /// - Parameters:
  ///   - chart: The path of ``headlineChart(unranked:)``, relative to the page.
  ///   - unranked: Subjects that are shown but never marked as the fastest. Subjects that are not persistent are not
  ///     marked either, unless no subject is persistent.
  public func headlinesMarkdown(chart: String, unranked: Set<String> = []) -> String {
    let ranked = ranked(without: unranked)
    let others = subjects.filter { !ranked.contains($0) }
    let exceptions = others.isEmpty ? "" : " except \(others.joined(separator: " and "))"
    return [
      "![Operations per second, workload by workload](\(chart))",
      table(\.time, of: headlines, unranked: unranked, fastest: { "**\($0)**" }).markdown,
      "Median time of one operation: \(conditions). In bold: the fastest\(exceptions); ≈ marks a tie with it: their "
        + "ranges overlap.",
    ].joined(separator: "\n\n")
  }

  /// The whole report as a page in GitHub's Markdown.
  ///
  /// - Parameters:
  ///   - command: The command that produces the page, which the page shows.
  ///   - headlines: The first section, such as ``headlinesMarkdown(chart:unranked:)``.
  ///   - unranked: As in ``headlinesMarkdown(chart:unranked:)``.
  public func page(command: String, headlines: String, unranked: Set<String> = []) -> String {
    let sections: [(title: String, body: String)] = [
      ("Summary", headlines),
      (
        "Time of one operation",
        (repetitions == 1 ? "One repetition, no spread." : "The \(timesText).") + "\n\n"
          + table(times, unranked: unranked, fastest: { "**\($0)**" }).markdown
      ),
      (
        "Operations per second",
        table(\.throughput, unranked: unranked, fastest: { "**\($0)**" }).markdown
      ),
      ("Other quantities", detailsMarkdown.trimmingCharacters(in: .newlines)),
      (
        "Workloads",
        workloads.map { "- `\($0.name)`: \(explanation(of: $0))" }.joined(separator: "\n")
      ),
    ]
    // Longer than any run of backquotes in the command, such as in a file name, which would otherwise end the block.
    let longest = command.split { $0 != "`" }.map(\.count).max() ?? 0
    let fence = String(repeating: "`", count: max(3, longest + 1))
    return
      (["# Results\n\nProduced by this command:\n\n\(fence)\n\(command)\n\(fence)\n\n\(setting.markdown)"]
      + sections.map { "## \($0.title)\n\n\($0.body)" }).joined(separator: "\n\n") + "\n"
  }

  /// The conditions of the run in a line.
  private var conditions: String {
    [
      recordsText, durability.map { "durability \($0)" },
      "\(machine.cores) cores of \(machine.processor ?? machine.architecture)", fileSystemText,
    ].compactMap(\.self).joined(separator: ", ")
  }

  /// The conditions of the run as a table.
  private var setting: TextTable {
    let rows: [(String, String?)] = [
      ("system", machine.operatingSystem),
      ("processor", machine.processor.map { "\($0), \(machine.architecture)" } ?? machine.architecture),
      ("cores", "\(machine.cores)"),
      ("memory", Units.bytes(machine.memory)),
      ("file system", fileSystemText),
      ("Swift", machine.swift + (machine.isOptimized ? "" : ", **not optimized**")),
      ("software", software?.joined(separator: ", ")),
      ("records", recordsText),
      ("seed", "\(seed)"),
      ("durability", durability),
      ("repetitions", "\(repetitions), after a warm-up"),
      ("date", date.formatted(.iso8601)),
    ]
    return TextTable(
      header: ["condition", "value"], rows: rows.compactMap { name, value in value.map { [name, $0] } },
      wordColumns: 2)
  }
}
