/// The SVG elements of a chart, to embed in a page or in another drawing.
struct Drawing {
  let title: String
  /// The description for screen readers.
  let note: String
  let height: Double
  let parts: [String]

  /// An SVG element as wide as its container.
  var svg: String { element("") }

  /// An SVG element at a position in another drawing.
  func svg(x: Double, y: Double) -> String {
    element(" x=\"\(px(x))\" y=\"\(px(y))\" width=\"\(px(Layout.width))\" height=\"\(px(height))\"")
  }

  private func element(_ place: String) -> String {
    "<svg\(place) viewBox=\"0 0 \(px(Layout.width)) \(px(height))\" role=\"img\" "
      + "aria-label=\"\(title.escapingHTML)\"><title>\("\(title): \(note)".escapingHTML)</title>"
      + text(title, x: 0, y: 13, kind: "title") + parts.joined() + "</svg>"
  }
}

func text(
  _ content: String, x: Double, y: Double, kind: String? = nil, anchor: String = "start"
) -> String {
  let kind = kind.map { " class=\"\($0)\"" } ?? ""
  return "<text x=\"\(px(x))\" y=\"\(px(y))\" text-anchor=\"\(anchor)\"\(kind)>\(content.escapingHTML)</text>"
}

/// A length in pixels, rounded to tenths.
func px(_ value: Double) -> String { "\((value * 10).rounded() / 10)" }
