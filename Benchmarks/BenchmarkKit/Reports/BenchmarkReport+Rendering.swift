#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

extension BenchmarkReport {
  /// The report for a terminal: aligned tables of times and of throughput, with the fastest marked.
  public var text: String {
    let notes = [
      summary, machine.summary, "",
      "Time of one operation: median, and half the spread of \(repetitionsText).",
      "* fastest of its row   ≈ as fast as that one, as far as the spread lets one say   – does not take part",
    ]
    return [
      notes.joined(separator: "\n"),
      table(\.timeAndSpread, fastest: { "* " + $0 }).text,
      "Operations per second, at the median.",
      table(\.throughput, fastest: { "* " + $0 }).text,
      "What an operation is:\n"
        + workloads.map { "  \($0.name): \(explanation(of: $0))" }.joined(separator: "\n"),
    ].joined(separator: "\n\n") + "\n"
  }

  /// The same in GitHub's Markdown, with the fastest in bold.
  public var markdown: String {
    [
      "\(summary)  \n\(machine.summary)",
      "Time of one operation: median, and half the spread of \(repetitionsText). The fastest of a row is in "
        + "bold; ≈ is as fast as that one, as far as the spread lets one say; – does not take part.",
      table(\.timeAndSpread, fastest: { "**\($0)**" }).markdown,
      "Operations per second, at the median.",
      table(\.throughput, fastest: { "**\($0)**" }).markdown,
      workloads.map { "- `\($0.name)`: \(explanation(of: $0))" }.joined(separator: "\n"),
    ].joined(separator: "\n\n") + "\n"
  }

  /// What was measured beside time, for a terminal: a table for each.
  public var details: String {
    detailTables.map { "\($0.caption)\n\n\($0.table.text)" }.joined(separator: "\n\n") + "\n"
  }

  /// What was measured beside time, in GitHub's Markdown.
  public var detailsMarkdown: String {
    detailTables.map { "\($0.caption)\n\n\($0.table.markdown)" }.joined(separator: "\n\n") + "\n"
  }

  /// All of the data as one JSON object, with its keys in alphabetical order and the date in ISO 8601.
  ///
  /// - Throws: `EncodingError` if a sample is not a finite number, which a run cannot give.
  public func json() throws -> Data {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    encoder.dateEncodingStrategy = .iso8601
    return try encoder.encode(self)
  }

  /// The report that ``json()`` gave.
  ///
  /// - Throws: `DecodingError` if the data is something else.
  public init(json: Data) throws {
    let decoder = JSONDecoder()
    decoder.dateDecodingStrategy = .iso8601
    self = try decoder.decode(BenchmarkReport.self, from: json)
    guard isPossible else {
      throw DecodingError.dataCorrupted(
        .init(codingPath: [], debugDescription: "There are figures that no run can give."))
    }
  }

  /// Whether a run can have given the figures that others are calculated from.
  private var isPossible: Bool {
    ([valueSize] + workloads.map(\.valueSize)).allSatisfy { $0 >= 0 }
      && results.allSatisfy { result in
        let seconds = [result.seconds.minimum, result.seconds.median, result.seconds.maximum]
        return result.operations > 0 && !result.samples.isEmpty
          && (seconds + result.samples).allSatisfy { (1e-12...1e12).contains($0) }
      }
  }

  /// What was run, in one line.
  var summary: String {
    let durability = durability.map { ", durability \($0)" } ?? ""
    return "\(recordsText), seed \(seed)"
      + "\(durability)\(fileSystem.map { " on \($0)" } ?? ""), \(date.formatted(.iso8601))"
  }

  /// How many records there were, and of what size.
  var recordsText: String {
    Self.text(entries, valueSize)
      + (workloads.contains(where: hasOwnRecords) ? " where a workload has no others" : "")
  }

  /// What a workload does, and with what records if not with those of the rest.
  func explanation(of workload: WorkloadDescription) -> String {
    hasOwnRecords(workload)
      ? "\(workload.summary) (\(Self.text(workload.entries, workload.valueSize)))" : workload.summary
  }

  private func hasOwnRecords(_ workload: WorkloadDescription) -> Bool {
    workload.entries != entries || workload.valueSize != valueSize
  }

  private static func text(_ entries: Int, _ valueSize: Int) -> String {
    "\(entries) entries, values of \(Units.bytes(UInt64(clamping: valueSize))) on average"
  }

  /// How often it was measured, as the end of a sentence.
  var repetitionsText: String {
    repetitions == 1 ? "1 repetition, which has none" : "\(repetitions) repetitions"
  }

  private var detailTables: [(caption: String, table: TextTable)] {
    let tables = [
      (
        "Calls: the median, and what 99 of 100 and 999 of 1,000 did not exceed. Of calls below a microsecond several are "
          + "timed together, and each counts as their mean.",
        table(\.latencies)
      ),
      ("Work of all processors for one operation.", table(\.processorTime)),
      ("Growth of the process's memory at its peak, with the pages of mapped files.", table(\.memory)),
      ("Bytes on disk for each byte of keys and values.", table(\.bytesPerByte)),
      (
        "Longest time for which a task that wanted to run every millisecond was kept from it.",
        table(\.stallTime)
      ),
    ]
    return tables.compactMap { caption, table in
      var table = table
      // Some workloads have nothing to say about some of it.
      table.rows.removeAll { row in row.dropFirst().allSatisfy { $0 == "–" } }
      return table.rows.isEmpty ? nil : (caption, table)
    }
  }

  /// A row for each workload, a column for each subject.
  ///
  /// - Parameters:
  ///   - chosen: The workloads; nil for all.
  ///   - apart: Subjects that are not in the race for the fastest.
  ///   - fastest: How the fastest is marked; nil if the race is not about what the table shows.
  func table(
    _ cell: KeyPath<BenchmarkResult, String>, of chosen: [WorkloadDescription]? = nil,
    apart: Set<String> = [], fastest: ((String) -> String)? = nil
  ) -> TextTable {
    let racers = subjects.filter { !apart.contains($0) }
    let rows = (chosen ?? workloads).map { workload in
      [workload.name]
        + subjects.map { subject in
          guard let result = result(of: subject, in: workload.name) else { return "–" }
          let content = result[keyPath: cell]
          guard let fastest, racers.count > 1 else { return content }
          return switch standing(of: subject, in: workload.name, among: racers) {
          case .fastest: fastest(content)
          case .tied: "≈ " + content
          default: content
          }
        }
    }
    return TextTable(header: ["workload"] + subjects, rows: rows)
  }
}

extension BenchmarkResult {
  var time: String { Units.seconds(secondsPerOperation) }
  var timeAndSpread: String { "\(time) ±\(Units.percent(seconds.relativeSpread))" }
  var throughput: String { Units.perSecond(operationsPerSecond) }

  fileprivate var latencies: String {
    latency.map { [$0.p50, $0.p99, $0.p999].map(Units.seconds).joined(separator: " / ") } ?? "–"
  }

  fileprivate var processorTime: String { Units.seconds(processorSecondsPerOperation) }
  fileprivate var memory: String { peakMemory.map(Units.bytes) ?? "–" }
  fileprivate var bytesPerByte: String { bytesOnDiskPerByte.map(Units.digits) ?? "–" }
  fileprivate var stallTime: String { stall.map(Units.seconds) ?? "–" }
}
