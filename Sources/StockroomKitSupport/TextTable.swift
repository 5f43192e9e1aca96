/// A table of words and figures for the reports of the kits.
package struct TextTable: Sendable {
  package var header: [String]
  package var rows: [[String]]
  /// The number of leading columns that are aligned left. The others are aligned right.
  package var wordColumns: Int

  package init(header: [String], rows: [[String]] = [], wordColumns: Int = 1) {
    self.header = header
    self.rows = rows
    self.wordColumns = wordColumns
  }

  /// The table for a terminal: aligned with spaces, with a rule below the header.
  package var text: String {
    let widths = header.indices.map { column in
      ([header] + rows).map { column < $0.count ? $0[column].count : 0 }.max() ?? 0
    }
    let lines = [header, widths.map { String(repeating: "─", count: $0) }] + rows
    return lines.map { cells in
      zip(cells, widths).enumerated().map { column, cell in
        let (content, width) = cell
        let blanks = String(repeating: " ", count: width - content.count)
        return column < wordColumns ? content + blanks : blanks + content
      }.joined(separator: "  ").trimmingTrailingBlanks
    }.joined(separator: "\n")
  }

  /// The table as GitHub-flavored Markdown.
  package var markdown: String {
    let alignment = header.indices.map { $0 < wordColumns ? "---" : "---:" }
    return ([header, alignment] + rows).map { cells in
      "| " + cells.map { $0.escapingMarkdown }.joined(separator: " | ") + " |"
    }.joined(separator: "\n")
  }
}

extension String {
  /// The text without trailing spaces.
  fileprivate var trimmingTrailingBlanks: String {
    String(prefix(upTo: lastIndex { $0 != " " }.map(index(after:)) ?? startIndex))
  }

  /// The text with the characters escaped that would end a cell.
  fileprivate var escapingMarkdown: String {
    var escaped = ""
    for character in self {
      switch character {
      case "|": escaped += "\\|"
      case "\n", "\r\n": escaped += " "
      default: escaped.append(character)
      }
    }
    return escaped
  }
}
