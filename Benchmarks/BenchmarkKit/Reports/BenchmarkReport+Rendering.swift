#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomKitSupport

extension BenchmarkReport {
  /// The report as text for a terminal: aligned tables of times and of throughput, with the fastest marked.
  public var text: String {
    let notes = [
      summary, machine.summary, "",
      "Time of one operation: \(timesText).",
      "* fastest of its row   ≈ tied with it: their ranges overlap   – not measured",
      unrankedText,
    ].compactMap(\.self)
    return [
      notes.joined(separator: "\n"),
      table(times, fastest: { "* " + $0 }).text,
      "Operations per second, at the median.",
      table(\.throughput, fastest: { "* " + $0 }).text,
      "Workloads:\n"
        + workloads.map { "  \($0.name): \(explanation(of: $0))" }.joined(separator: "\n"),
    ].joined(separator: "\n\n") + "\n"
  }

  /// The report in GitHub's Markdown, with the fastest in bold.
  public var markdown: String {
    let note = unrankedText.map { " " + $0 } ?? ""
    return [
      "\(summary)  \n\(machine.summary)",
      "Time of one operation: \(timesText). The fastest of a row is in "
        + "bold; ≈ is tied with it: their ranges overlap; – was not measured.\(note)",
      table(times, fastest: { "**\($0)**" }).markdown,
      "Operations per second, at the median.",
      table(\.throughput, fastest: { "**\($0)**" }).markdown,
      workloads.map { "- `\($0.name)`: \(explanation(of: $0))" }.joined(separator: "\n"),
    ].joined(separator: "\n\n") + "\n"
  }

  /// A table of each quantity other than time, as text for a terminal.
  public var details: String {
    detailTables.map { "\($0.caption)\n\n\($0.table.text)" }.joined(separator: "\n\n") + "\n"
  }

  /// A table of each quantity other than time, in GitHub's Markdown.
  public var detailsMarkdown: String {
    detailTables.map { "\($0.caption)\n\n\($0.table.markdown)" }.joined(separator: "\n\n") + "\n"
  }

  /// All of the data as one JSON object, with its keys in alphabetical order and the date in ISO 8601.
  ///
  /// - Throws: `EncodingError` if a sample is not a finite number, which no run produces.
  public func json() throws -> Data {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    encoder.dateEncodingStrategy = .iso8601
    return try encoder.encode(self)
  }

  /// Decodes a report that ``json()`` encoded.
  ///
  /// - Throws: `DecodingError` for any other data.
  public init(json: Data) throws {
    let decoder = JSONDecoder()
    decoder.dateDecodingStrategy = .iso8601
    self = try decoder.decode(BenchmarkReport.self, from: json)
    guard isPossible else {
      throw DecodingError.dataCorrupted(
        .init(codingPath: [], debugDescription: "The report has figures that no run produces."))
    }
  }

  /// Whether the values from which others are calculated are in their valid ranges.
  private var isPossible: Bool {
    Set(subjects).count == subjects.count
      && ([valueSize] + workloads.map(\.valueSize)).allSatisfy { $0 >= 0 }
      && results.allSatisfy { result in
        let seconds = [result.seconds.minimum, result.seconds.median, result.seconds.maximum]
        return result.operations > 0 && !result.samples.isEmpty && seconds == seconds.sorted()
          && (seconds + result.samples).allSatisfy { (1e-12...1e12).contains($0) }
      }
  }

  /// A sentence about the subjects that are not ranked; nil if all are.
  var unrankedText: String? {
    let names = subjects.filter(unrankedSubjects.contains)
    return names.isEmpty
      ? nil
      : "Not ranked, since what is stored there ends with the process: \(names.joined(separator: ", "))."
  }

  /// The configuration and the date in one line.
  var summary: String {
    let durability = durability.map { ", durability \($0)" } ?? ""
    return "\(recordsText), seed \(seed)"
      + "\(durability)\(fileSystemText.map { " on \($0)" } ?? ""), \(date.formatted(.iso8601))"
  }

  /// The number and size of the records.
  var recordsText: String {
    Self.text(entries, valueSize)
      + (workloads.contains(where: hasOwnRecords) ? " unless a workload has its own" : "")
  }

  /// The summary of a workload, with its records if they are not those of the configuration.
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

  /// The time of one operation, with the spread if there is one.
  var times: KeyPath<BenchmarkResult, String> { repetitions == 1 ? \.time : \.timeAndSpread }

  /// The meaning of ``times``, as the end of a sentence.
  var timesText: String {
    repetitions == 1
      ? "one repetition, no spread" : "median, and half the spread of \(repetitions) repetitions"
  }

  /// Half the spread of a result in percent of its median; nil if there is one repetition.
  func spreadText(of result: BenchmarkResult) -> String? { repetitions == 1 ? nil : result.spread }

  /// The quantities other than time, with their definitions.
  static var quantities: [(name: String, definition: String, cell: KeyPath<BenchmarkResult, String>)] {
    [
      (
        "processors",
        "The time of all processors for one operation, excluding a server, including the task that measures stalls.",
        \.processorTime
      ),
      ("memory", "The peak growth of the process's memory, including pages of mapped files.", \.memory),
      ("disk", "The bytes on disk for each byte of keys and values.", \.bytesPerByte),
      (
        "stall", "The longest delay of a task on the same threads that was due every millisecond.",
        \.stallTime
      ),
    ]
  }

  private var detailTables: [(caption: String, table: TextTable)] {
    let latencies = (
      name: "calls",
      definition:
        "The 50th, 99th and 99.9th percentile of the time of one call. Calls of less than a microsecond "
        + "are timed several at once, and each counts as their mean.", cell: \BenchmarkResult.latencies
    )
    return ([latencies] + Self.quantities).compactMap { name, definition, cell in
      var table = table(cell)
      // Not every workload has every quantity.
      table.rows.removeAll { row in row.dropFirst().allSatisfy { $0 == "–" } }
      return table.rows.isEmpty ? nil : ("\(name.capitalized): \(definition)", table)
    }
  }

  /// A row for each workload, a column for each subject.
  ///
  /// - Parameters:
  ///   - chosen: The workloads; nil for all.
  ///   - unranked: Subjects that cannot be marked as the fastest, besides ``unrankedSubjects``.
  ///   - fastest: Marks the cell of the fastest; nil for a table without marks.
  func table(
    _ cell: KeyPath<BenchmarkResult, String>, of chosen: [WorkloadDescription]? = nil,
    unranked: Set<String> = [], fastest: ((String) -> String)? = nil
  ) -> TextTable {
    let ranked = ranked(without: unranked)
    let rows = (chosen ?? workloads).map { workload in
      [workload.name]
        + subjects.map { subject in
          guard let result = result(of: subject, in: workload.name) else { return "–" }
          let content = result[keyPath: cell]
          guard let fastest, ranked.count > 1 else { return content }
          return switch standing(of: subject, in: workload.name, among: ranked) {
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
  var timeAndSpread: String { "\(time) \(spread)" }
  fileprivate var spread: String { "±\(Units.percent(seconds.relativeSpread))" }
  var throughput: String { Units.perSecond(operationsPerSecond) }

  fileprivate var latencies: String {
    latency.map { [$0.p50, $0.p99, $0.p999].map(Units.seconds).joined(separator: " / ") } ?? "–"
  }

  fileprivate var processorTime: String { Units.seconds(processorSecondsPerOperation) }
  fileprivate var memory: String { peakMemory.map(Units.bytes) ?? "–" }
  fileprivate var bytesPerByte: String { bytesOnDiskPerByte.map { "\(Units.digits($0))×" } ?? "–" }
  fileprivate var stallTime: String { stall.map(Units.seconds) ?? "–" }
}
