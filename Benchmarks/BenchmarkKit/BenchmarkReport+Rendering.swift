#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

extension BenchmarkReport {
  /// The report for a terminal: aligned tables of times and of throughput, with the fastest marked.
  public var text: String {
    let notes = [
      summary, machine.summary, "",
      "Time of one operation: median, and half the spread of \(repetitionsText).",
      "* fastest of its row   ≈ as fast as that one, as far as the spread lets one say",
    ]
    return [
      notes.joined(separator: "\n"),
      table(markingWith: { "* " + $0 }, "≈ ", cell: \.timeAndSpread).text,
      "Operations per second, at the median.",
      table(markingWith: { "* " + $0 }, "≈ ", cell: \.throughput).text,
      "What an operation is:\n"
        + workloads.map { "  \($0.name): \($0.summary) \($0.operationsText)" }.joined(separator: "\n"),
    ].joined(separator: "\n\n") + "\n"
  }

  /// The same in GitHub's Markdown, with the fastest in bold.
  public var markdown: String {
    [
      "\(summary)  \n\(machine.summary)",
      "Time of one operation: median, and half the spread of \(repetitionsText). The fastest of a row is in "
        + "bold; ≈ is as fast as that one, as far as the spread lets one say.",
      table(markingWith: { "**\($0)**" }, "≈ ", cell: \.timeAndSpread).markdown,
      "Operations per second, at the median.",
      table(markingWith: { "**\($0)**" }, "≈ ", cell: \.throughput).markdown,
      workloads.map { "- `\($0.name)`: \($0.summary) \($0.operationsText)" }.joined(separator: "\n"),
    ].joined(separator: "\n\n") + "\n"
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
  }

  private var summary: String {
    let durability = durability.map { ", durability \($0)" } ?? ""
    return "\(entries) entries, values of \(Units.bytes(UInt64(valueSize))) on average, seed \(seed)"
      + "\(durability), \(date.formatted(.iso8601))"
  }

  private var repetitionsText: String {
    repetitions == 1 ? "1 repetition, which has none" : "\(repetitions) repetitions"
  }

  private func table(
    markingWith fastest: (String) -> String, _ tie: String, cell: KeyPath<BenchmarkResult, String>
  ) -> TextTable {
    let rows = workloads.map { workload in
      [workload.name]
        + subjects.map { subject in
          guard let result = result(of: subject, in: workload.name) else { return "" }
          let content = result[keyPath: cell]
          return switch standing(of: subject, in: workload.name) {
          case .fastest where subjects.count > 1: fastest(content)
          case .tied: tie + content
          default: content
          }
        }
    }
    return TextTable(header: ["workload"] + subjects, rows: rows)
  }
}

extension BenchmarkResult {
  fileprivate var timeAndSpread: String {
    "\(Units.seconds(secondsPerOperation)) ±\(Units.percent(seconds.relativeSpread))"
  }

  fileprivate var throughput: String { Units.perSecond(operationsPerSecond) }
}

extension WorkloadDescription {
  fileprivate var operationsText: String {
    operations == 1 ? "(1 operation)" : "(\(operations) operations)"
  }
}
