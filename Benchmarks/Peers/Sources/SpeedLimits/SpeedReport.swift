import BenchmarkKit
import Foundation

/// Limits, and what a run says about each.
public struct SpeedReport: Sendable, Codable {
  /// What was measured.
  public let benchmark: BenchmarkReport
  /// One for each limit, in their order.
  public let verdicts: [Verdict]

  /// Judges a run.
  public init(_ limits: [Limit], in benchmark: BenchmarkReport) {
    self.benchmark = benchmark
    verdicts = limits.map { Verdict($0, in: benchmark) }
  }

  /// Whether no limit is missed.
  public var areAllKept: Bool { verdicts.allSatisfy(\.isKept) }

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

  /// The same in GitHub's Markdown.
  public var markdown: String {
    let alignment = Self.header.indices.map { $0 == 0 ? "---" : "---:" }
    let lines = ([Self.header, alignment] + rows).map { "| " + $0.joined(separator: " | ") + " |" }
    return (notes.map { $0 + "  " } + [""] + lines + ["", summary]).joined(separator: "\n") + "\n"
  }

  /// All of it, with what was measured, as one JSON object.
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
      "Median of the ratios of all repetitions (of stalls, in milliseconds), and the least and the greatest.",
    ]
  }

  private var summary: String {
    let missed = verdicts.count { !$0.isKept }
    return missed == 0
      ? "All \(verdicts.count) limits are kept." : "\(missed) of \(verdicts.count) limits are missed."
  }

  private static let header = ["limit", "measured", "allowed", "spread", "time", "reference", "verdict"]

  private var rows: [[String]] {
    verdicts.map { verdict in
      [
        verdict.limit, verdict.value.map { Self.number($0.median) } ?? "–",
        verdict.atMost.map { "≤ \(Self.number($0))" } ?? verdict.atLeast.map { "≥ \(Self.number($0))" } ?? "",
        verdict.value.map { $0.spread > 0 ? "\(Self.number($0.minimum))–\(Self.number($0.maximum))" : "" }
          ?? "",
        verdict.measuredSeconds.map(Self.time) ?? "–", verdict.referenceSeconds.map(Self.time) ?? "",
        verdict.isKept ? "kept" : verdict.value == nil ? "NOT MEASURED" : "MISSED",
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
