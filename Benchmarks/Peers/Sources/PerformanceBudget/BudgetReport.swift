import BenchmarkKit
import Foundation

/// The results of a run for all limits.
public struct BudgetReport: Sendable, Codable {
  /// The measurements.
  public let benchmark: BenchmarkReport
  /// The result for each limit, in their order.
  public let results: [LimitResult]

  /// Compares a run with limits.
  public init(_ limits: [Limit], in benchmark: BenchmarkReport) {
    self.benchmark = benchmark
    results = limits.map { LimitResult($0, in: benchmark) }
  }

  /// Whether every limit is met.
  public var areAllMet: Bool { results.allSatisfy(\.isMet) }

  /// The table for a terminal.
  public var text: String {
    let widths = Self.header.indices.map { column in
      ([Self.header] + rows).map { $0[column].count }.max() ?? 0
    }
    let lines = ([Self.header, widths.map { String(repeating: "─", count: $0) }] + rows).map { cells in
      zip(cells, widths).enumerated().map { column, cell in
        let blanks = String(repeating: " ", count: cell.1 - cell.0.count)
        return column == 0 ? cell.0 + blanks : blanks + cell.0
      }.joined(separator: "  ")
    }
    return (notes + [""] + lines + ["", summary]).joined(separator: "\n") + "\n"
  }

  /// The table in GitHub's Markdown.
  public var markdown: String {
    let alignment = Self.header.indices.map { $0 == 0 ? "---" : "---:" }
    let lines = ([Self.header, alignment] + rows).map { "| " + $0.joined(separator: " | ") + " |" }
    return (notes.map { $0 + "  " } + [""] + lines + ["", summary]).joined(separator: "\n") + "\n"
  }

  /// The results and the measurements as one JSON object.
  ///
  /// - Throws: `EncodingError` if a ratio is not a finite number.
  public func json() throws -> Data {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    encoder.dateEncodingStrategy = .iso8601
    return try encoder.encode(self)
  }

  private var notes: [String] {
    [
      "\(benchmark.entries) entries, values of \(benchmark.valueSize) bytes on average, "
        + "\(benchmark.repetitions) repetitions, durability \(benchmark.durability ?? "unknown")",
      benchmark.machine.summary,
      "Median and range of the ratios of all repetitions; stalls in milliseconds.",
    ]
  }

  private var summary: String {
    let missed = results.count { !$0.isMet }
    return missed == 0
      ? "All \(results.count) limits are met." : "\(missed) of \(results.count) limits are missed."
  }

  private static let header = ["limit", "measured", "allowed", "spread", "time", "reference", "result"]

  private var rows: [[String]] {
    results.map { result in
      [
        result.limit, result.value.map { Self.number($0.median) } ?? "–",
        result.atMost.map { "≤ \(Self.number($0))" } ?? result.atLeast.map { "≥ \(Self.number($0))" } ?? "",
        result.value.map { $0.spread > 0 ? "\(Self.number($0.minimum))–\(Self.number($0.maximum))" : "" }
          ?? "",
        result.measuredSeconds.map(Self.time) ?? "–", result.referenceSeconds.map(Self.time) ?? "",
        result.isMet ? "met" : result.value == nil ? "NOT MEASURED" : "MISSED",
      ]
    }
  }

  private static func number(_ value: Double) -> String {
    String(format: value < 99.95 ? value < 9.995 ? "%.2f" : "%.1f" : "%.0f", value)
  }

  private static func time(_ seconds: Double) -> String {
    switch seconds {
    case ..<1e-6: "\(number(seconds * 1e9)) ns"
    case ..<1e-3: "\(number(seconds * 1e6)) µs"
    case ..<1: "\(number(seconds * 1e3)) ms"
    default: "\(number(seconds)) s"
    }
  }
}
