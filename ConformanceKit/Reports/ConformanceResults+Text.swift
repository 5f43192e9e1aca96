extension ConformanceResults {
  /// The results for a terminal: the matrix, the failures and the skipped checks, followed by a line feed.
  public var text: String {
    let legend =
      "Checks passed, by rule and engine.  ✗ failed   ○ could not be checked here   ! could not run   – does not apply"
    let failures = failures.map { engine, failure in
      let reproduction = failure.reproduction ?? ""
      let evidence = failure.evidence.map { "\n\n" + $0.indented(by: 6) + "\n" } ?? ""
      return "✗ \(engine), \(failure.check)\n  \(failure.paragraph)\(evidence)\n  Reproduce: \(reproduction)"
    }
    let checkErrors = checkErrors.map { "! \($0), \($1.check): could not run: \($1.reason.inOneLine)" }
    let skips = skippedChecks.map {
      "○ \($0.engines.joined(separator: ", ")), \($0.check): \($0.reason.inOneLine)"
    }
    return paragraphs(
      [legend, matrix(includingSummaries: false).text] + failures + [
        checkErrors.joined(separator: "\n"), skips.joined(separator: "\n"), conclusion,
      ]
    ).withVisibleControls
  }
}

/// The non-empty texts, separated by empty lines.
func paragraphs(_ texts: [String]) -> String {
  texts.filter { !$0.isEmpty }.joined(separator: "\n\n") + "\n"
}

extension String {
  /// The text with line breaks replaced by spaces.
  var inOneLine: String { split(whereSeparator: \.isNewline).joined(separator: " ") }

  /// The text with each non-empty line indented by spaces.
  func indented(by count: Int) -> String {
    let blanks = String(repeating: " ", count: count)
    return split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
      .map { $0.isEmpty ? "" : blanks + $0 }
      .joined(separator: "\n")
  }

  /// The text with control characters escaped as in Swift literals, except tabs and line feeds: a terminal
  /// would interpret them, and XML cannot contain most of them.
  var withVisibleControls: String {
    var text = ""
    for scalar in unicodeScalars {
      switch scalar {
      case "\t", "\n": text.unicodeScalars.append(scalar)
      case "\r": text += "\\r"
      case "\0"..<" ", "\u{7F}"..."\u{9F}", "\u{2028}", "\u{2029}", "\u{FFFE}", "\u{FFFF}":
        text += "\\u{\(String(scalar.value, radix: 16, uppercase: true))}"
      default: text.unicodeScalars.append(scalar)
      }
    }
    return text
  }
}
