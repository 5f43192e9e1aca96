extension BenchmarkReport {
  /// The report as a self-contained HTML file: charts of throughput, of latency, and of cost by number of
  /// entries, and a table of all results. It supports light and dark mode, and narrow and wide screens.
  public var html: String {
    let note = unrankedText.map { " " + $0.escapingHTML } ?? ""
    let sections = [
      Section(
        "Throughput",
        "Operations per second at the median. \(Self.barsNote)\(note)",
        workloads.compactMap(throughputFigure)),
      Section(
        "Latency",
        "Time of one call. The scale is logarithmic and does not begin at zero; further left is better. From left to "
          + "right: the 50th, 90th, 99th and 99.9th percentiles.", charts(latencyChart)),
      Section(
        "Cost against the number of entries",
        "Time of one operation by number of entries. The scales are logarithmic and do not begin at zero; a level line is best.",
        growthSeries.map { LineChart($0, colors: colors).drawing.svg }),
    ].filter { !$0.figures.isEmpty }
    return """
      <!doctype html>
      <html lang="en">
      <head>
      <meta charset="utf-8">
      <meta name="viewport" content="width=device-width, initial-scale=1">
      <title>Stockroom benchmark</title>
      <style>
      \(chartStyle)
      \(pageStyle)
      </style>
      </head>
      <body>
      <header>
      <h1>Stockroom benchmark</h1>
      <p>\(summary.escapingHTML)<br>\(machine.summary.escapingHTML)</p>
      <ul class="legend">\(legend)</ul>
      </header>
      <details><summary>Glossary</summary>
      <dl>\(Self.glossary.map { "<dt>\($0)</dt><dd>\($1)</dd>" }.joined(separator: "\n"))</dl>
      </details>
      \(sections.map(\.html).joined(separator: "\n"))
      <section><h2>All figures</h2>
      <p>\(repetitions == 1 ? "One repetition, no spread." : "Median of \(repetitions) repetitions; the spread is half of their range.")</p>
      <div class="scroll">\(table)</div>
      </section>
      </body>
      </html>

      """
  }

  private static let barsNote =
    "Bars begin at zero; longer is better; a bar with a gap is cut. The thin line is the range of all repetitions, and ± "
    + "is half of it; ≈ marks a tie with the fastest: their ranges overlap."

  private static var glossary: [(String, String)] {
    [
      ("median", "Half of the repetitions took longer, and half took less time."),
      (
        "spread",
        "Half of the difference between the fastest and the slowest repetition, divided by the median."
      ),
      ("tie, ≈", "The ranges of this engine and of the fastest overlap: another run may reverse the order."),
      ("throughput", "Operations per second. The workload defines one operation."),
      ("p50, p90, p99, p99.9", "Percentiles of the time of one call."),
    ] + quantities.map { ($0.name, $0.definition) }
  }

  /// The color of each subject, assigned by position.
  private var colors: [String: String] {
    Dictionary(uniqueKeysWithValues: subjects.enumerated().map { ($1, "var(--color-\($0 % paletteSize))") })
  }

  private var legend: String {
    subjects.map { subject in
      "<li><svg width=\"12\" height=\"12\" aria-hidden=\"true\"><rect width=\"12\" height=\"12\" rx=\"2\" "
        + "fill=\"\(colors[subject] ?? "")\"/></svg> \(subject.escapingHTML)</li>"
    }.joined()
  }

  private func charts(_ chart: (WorkloadDescription) -> Drawing?) -> [String] {
    workloads.compactMap { chart($0)?.svg }
  }

  private func results(in workload: WorkloadDescription) -> [BenchmarkResult] {
    subjects.compactMap { result(of: $0, in: workload.name) }
  }

  /// The chart with the workload's summary below it.
  private func throughputFigure(_ workload: WorkloadDescription) -> String? {
    throughputChart(workload).map { chart in
      "<figure>\(chart.svg)<figcaption>\(explanation(of: workload).escapingHTML)</figcaption></figure>"
    }
  }

  /// - Parameter unranked: Subjects to exclude from the comparison, in addition to ``unrankedSubjects``.
  func throughputChart(_ workload: WorkloadDescription, unranked: Set<String> = []) -> Drawing? {
    let ranked = ranked(without: unranked)
    let bars = results(in: workload).map { result in
      let isTied = standing(of: result.subject, in: workload.name, among: ranked) == .tied
      let operations = Double(result.operations)
      return BarChart.Bar(
        label: result.subject, value: result.operationsPerSecond,
        range: operations / result.seconds.maximum...operations / result.seconds.minimum,
        text: "\(isTied ? "≈ " : "")\(result.throughput)\(spreadText(of: result).map { " " + $0 } ?? "")",
        color: colors[result.subject] ?? "")
    }
    return bars.isEmpty ? nil : BarChart(title: workload.name, note: workload.summary, bars: bars).drawing
  }

  private func latencyChart(_ workload: WorkloadDescription) -> Drawing? {
    let rows = results(in: workload).compactMap { result in
      result.latency.map {
        DotChart.Row(
          label: result.subject, values: [$0.p50, $0.p90, $0.p99, $0.p999],
          color: colors[result.subject] ?? "")
      }
    }
    return rows.isEmpty ? nil : DotChart(title: workload.name, note: workload.summary, rows: rows).drawing
  }

  /// The workloads whose names differ only in the number of entries at the end.
  private var growthSeries: [LineChart.Series] {
    var names: [String] = []
    var points: [String: [(entries: Int, workload: WorkloadDescription)]] = [:]
    for workload in workloads {
      guard let hyphen = workload.name.lastIndex(of: "-"),
        let entries = Int(workload.name[workload.name.index(after: hyphen)...]), entries >= 1_000
      else { continue }
      let name = String(workload.name[..<hyphen])
      if points[name] == nil { names.append(name) }
      points[name, default: []].append((entries, workload))
    }
    return names.compactMap { name in
      guard let points = points[name], points.count > 1, !name.hasPrefix("write-batch") else { return nil }
      let lines = subjects.map { subject in
        LineChart.Line(
          label: subject,
          points: points.sorted { $0.entries < $1.entries }.compactMap { entries, workload in
            result(of: subject, in: workload.name).map { (Double(entries), $0.secondsPerOperation) }
          })
      }.filter { $0.points.count > 1 }
      return lines.isEmpty ? nil : LineChart.Series(title: name, lines: lines)
    }
  }

  private var table: String {
    let ranked = ranked()
    let header =
      ["workload", "subject", "time", "spread", "throughput", "p50", "p99", "p99.9"]
      + Self.quantities.map(\.name)
    let rows = results.map { result -> [String] in
      let latency = result.latency
      return [
        result.workload, result.subject,
        (standing(of: result.subject, in: result.workload, among: ranked) == .tied ? "≈ " : "")
          + Units.seconds(result.secondsPerOperation),
        spreadText(of: result) ?? "–", Units.perSecond(result.operationsPerSecond),
        latency.map { Units.seconds($0.p50) } ?? "–", latency.map { Units.seconds($0.p99) } ?? "–",
        latency.map { Units.seconds($0.p999) } ?? "–",
      ] + Self.quantities.map { result[keyPath: $0.cell] }
    }
    func row(_ cells: [String], _ tag: String) -> String {
      "<tr>" + cells.map { "<\(tag)>\($0.escapingHTML)</\(tag)>" }.joined() + "</tr>"
    }
    return
      "<table><thead>\(row(header, "th"))</thead><tbody>\(rows.map { row($0, "td") }.joined(separator: "\n"))"
      + "</tbody></table>"
  }
}

/// A heading, a sentence and charts.
private struct Section {
  let title: String
  let note: String
  let figures: [String]

  init(_ title: String, _ note: String, _ figures: [String]) {
    (self.title, self.note, self.figures) = (title, note, figures)
  }

  var html: String {
    "<section><h2>\(title)</h2>\n<p>\(note)</p>\n<div class=\"charts\">\n\(figures.joined(separator: "\n"))\n</div></section>"
  }
}

extension String {
  /// The text escaped for element content and attribute values.
  var escapingHTML: String {
    var escaped = ""
    for scalar in unicodeScalars {
      switch scalar {
      case "&": escaped += "&amp;"
      case "<": escaped += "&lt;"
      case ">": escaped += "&gt;"
      case "\"": escaped += "&quot;"
      case "'": escaped += "&#39;"
      default: escaped.unicodeScalars.append(scalar)
      }
    }
    return escaped
  }
}
