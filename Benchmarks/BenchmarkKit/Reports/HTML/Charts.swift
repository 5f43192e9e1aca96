#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Dimensions that all charts share, in pixels. The width is that of the narrowest common screens.
enum Layout {
  static let width = 320.0
  static let title = 18.0
  static let row = 20.0
  static let labels = 92.0
  static let padding = 4.0
}

/// Horizontal bars that begin at zero, one per subject, each with a line for the range of its samples.
///
/// If one of three or more bars is more than four times as long as every other one, it is cut, with a gap at the cut,
/// so that the others can be compared.
struct BarChart {
  struct Bar {
    let label: String
    let value: Double
    /// The lowest and the highest measured value.
    let range: ClosedRange<Double>
    let text: String
    let color: String
  }

  /// The width of the text after the bars.
  private static let figures = 132.0

  let title: String
  let note: String
  let bars: [Bar]

  var drawing: Drawing {
    let lengths = bars.map(\.value).sorted(by: >)
    let isCut = lengths.count > 2 && lengths[0] > 4 * lengths[1]
    let longest = isCut ? 1.3 * lengths[1] : bars.map(\.range.upperBound).max() ?? 0
    // Leaves room for the text after the bar.
    let space = Layout.width - Layout.labels - Self.figures
    let rows = bars.enumerated().map { index, bar in
      let y = Layout.title + Double(index) * Layout.row + Layout.padding
      func extent(of value: Double) -> Double { longest > 0 ? min(1, value / longest) * space : 0 }
      let length = max(1, extent(of: bar.value))
      let isShort = isCut && bar.value > longest
      let (low, high) = (extent(of: bar.range.lowerBound), extent(of: bar.range.upperBound))
      let gap = Layout.labels + space * 0.88
      return text(bar.label.shortened, x: 0, y: y + 13)
        + "<rect x=\"\(px(Layout.labels))\" y=\"\(px(y + 2))\" width=\"\(px(length))\" height=\"14\" rx=\"2\" "
        + "fill=\"\(bar.color)\"/>"
        + (isShort
          ? "<line class=\"gap\" x1=\"\(px(gap + 3))\" y1=\"\(px(y))\" x2=\"\(px(gap - 3))\" y2=\"\(px(y + 18))\"/>"
          : "<line class=\"range\" x1=\"\(px(Layout.labels + low))\" y1=\"\(px(y + 9))\" "
            + "x2=\"\(px(Layout.labels + high))\" y2=\"\(px(y + 9))\"/>")
        + text(bar.text, x: Layout.labels + max(length, isShort ? 0 : high) + 6, y: y + 13)
    }
    return Drawing(
      title: title, note: note, height: Layout.title + Double(bars.count) * Layout.row + 8, parts: rows)
  }
}

/// Dots on a logarithmic scale, one row per subject.
struct DotChart {
  struct Row {
    let label: String
    /// In seconds, ascending.
    let values: [Double]
    let color: String
  }

  let title: String
  let note: String
  let rows: [Row]

  var drawing: Drawing {
    let scale = LogarithmicScale(rows.flatMap(\.values), from: Layout.labels + 6, to: Layout.width - 10)
    let bottom = Layout.title + Double(rows.count) * Layout.row + Layout.padding
    let ticks = scale.ticks(atMost: 4).map { tick in
      let x = scale.position(of: tick)
      return
        "<line class=\"line\" x1=\"\(px(x))\" y1=\"\(px(Layout.title))\" x2=\"\(px(x))\" y2=\"\(px(bottom))\"/>"
        + text(Units.power(tick), x: x, y: bottom + 13, kind: "secondary", anchor: scale.anchor(at: x))
    }
    let dots = rows.enumerated().map { index, row in
      let y = Layout.title + (Double(index) + 0.5) * Layout.row + Layout.padding
      let positions = row.values.map(scale.position)
      let line =
        "<line x1=\"\(px(positions.first ?? 0))\" y1=\"\(px(y))\" x2=\"\(px(positions.last ?? 0))\" y2=\"\(px(y))\" "
        + "stroke=\"\(row.color)\" stroke-width=\"2\"/>"
      let circles = positions.enumerated().map { place, x in
        "<circle cx=\"\(px(x))\" cy=\"\(px(y))\" r=\"\(place == 0 ? 5 : 3)\" fill=\"\(row.color)\"/>"
      }
      return text(row.label.shortened, x: 0, y: y + 4) + line + circles.joined()
    }
    return Drawing(title: title, note: note, height: bottom + 20, parts: ticks + dots)
  }
}

/// Lines over the number of entries, with logarithmic axes.
struct LineChart {
  struct Line {
    let label: String
    /// The number of entries, and the time.
    let points: [(entries: Double, seconds: Double)]
  }

  struct Series {
    let title: String
    let lines: [Line]
  }

  private static let height = 190.0

  let series: Series
  let colors: [String: String]

  init(_ series: Series, colors: [String: String]) {
    self.series = series
    self.colors = colors
  }

  var drawing: Drawing {
    let points = series.lines.flatMap(\.points)
    let across = LogarithmicScale(points.map(\.entries), from: 62, to: Layout.width - 24, isWhole: false)
    let up = LogarithmicScale(points.map(\.seconds), from: Self.height - 24, to: Layout.title + 10)
    let horizontal = up.ticks(atMost: 5).map { tick in
      let y = up.position(of: tick)
      return "<line class=\"line\" x1=\"56\" y1=\"\(px(y))\" x2=\"\(px(Layout.width))\" y2=\"\(px(y))\"/>"
        + text(Units.power(tick), x: 50, y: y + 4, kind: "secondary", anchor: "end")
    }
    let entries = Set(points.map(\.entries)).sorted().map { entries in
      text(
        Units.count(entries), x: across.position(of: entries), y: Self.height - 4, kind: "secondary",
        anchor: "middle")
    }
    let lines = series.lines.map { line in
      let color = colors[line.label] ?? ""
      let places = line.points.map { (across.position(of: $0.entries), up.position(of: $0.seconds)) }
      let path = places.map { "\(px($0.0)),\(px($0.1))" }.joined(separator: " ")
      let dots = places.map { "<circle cx=\"\(px($0.0))\" cy=\"\(px($0.1))\" r=\"4\" fill=\"\(color)\"/>" }
      return "<polyline points=\"\(path)\" fill=\"none\" stroke=\"\(color)\" stroke-width=\"2\"/>"
        + dots.joined()
    }
    let note =
      "Time of one operation by number of entries, for \(series.lines.map(\.label).joined(separator: ", "))."
    return Drawing(
      title: series.title, note: note, height: Self.height, parts: horizontal + entries + lines)
  }
}

/// Maps positive numbers to positions on a logarithmic axis.
private struct LogarithmicScale {
  private let low: Double
  private let high: Double
  private let from: Double
  private let to: Double

  /// - Parameter isWhole: Whether the scale begins and ends at powers of ten.
  init(_ values: [Double], from: Double, to: Double, isWhole: Bool = true) {
    let logarithms = values.map { log10(max($0, 1e-12)) }
    let least = logarithms.min() ?? 0
    let most = logarithms.max() ?? 1
    low = isWhole ? least.rounded(.down) : least
    high = max(isWhole ? most.rounded(.up) : most, low + (isWhole ? 1 : 0.01))
    (self.from, self.to) = (from, to)
  }

  func position(of value: Double) -> Double {
    from + (log10(max(value, 1e-12)) - low) / (high - low) * (to - from)
  }

  /// Powers of ten on the scale, evenly spaced.
  func ticks(atMost count: Int) -> [Double] {
    let powers = Int(low.rounded(.up))...Int(high.rounded(.down))
    let step = max(1, (powers.count + count - 3) / max(1, count - 1))
    return stride(from: powers.lowerBound, through: powers.upperBound, by: step).map { pow(10, Double($0)) }
  }

  /// The text anchor that keeps a label at this position inside the chart.
  func anchor(at x: Double) -> String {
    if x > max(from, to) - 14 { return "end" }
    return x < min(from, to) + 14 ? "start" : "middle"
  }
}

extension String {
  /// The text truncated to the width of the labels.
  fileprivate var shortened: String { count > 13 ? "\(prefix(12))…" : self }
}
