/// Charts side by side in one SVG file, for light and dark backgrounds.
struct ChartSheet {
  private static let margin = 16.0
  private static let gap = 24.0
  private static let heading = 28.0
  private static let columns = 2

  let title: String
  let drawings: [Drawing]

  var svg: String {
    let height = drawings.map(\.height).max() ?? 0
    let rows = (drawings.count + Self.columns - 1) / Self.columns
    let size = (
      across: 2 * Self.margin + Double(Self.columns) * (Layout.width + Self.gap) - Self.gap,
      down: 2 * Self.margin + Self.heading + Double(rows) * (height + Self.gap) - Self.gap
    )
    let charts = drawings.enumerated().map { index, drawing in
      let (row, column) = index.quotientAndRemainder(dividingBy: Self.columns)
      return drawing.svg(
        x: Self.margin + Double(column) * (Layout.width + Self.gap),
        y: Self.margin + Self.heading + Double(row) * (height + Self.gap))
    }
    // The page that contains the charts can be light although the system's color scheme is dark, so the charts have a
    // background of their own.
    return """
      <svg xmlns="http://www.w3.org/2000/svg" width="\(px(size.across))" height="\(px(size.down))" \
      viewBox="0 0 \(px(size.across)) \(px(size.down))">
      <title>\(title.escapingHTML)</title>
      <style>
      \(chartStyle)
      </style>
      <rect width="100%" height="100%" rx="6" fill="var(--background)"/>
      \(text(title, x: Self.margin, y: Self.margin + 10, kind: "secondary"))
      \(charts.joined(separator: "\n"))
      </svg>

      """
  }
}
