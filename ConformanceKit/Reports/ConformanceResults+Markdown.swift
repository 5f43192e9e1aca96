extension ConformanceResults {
  /// The results in GitHub's Markdown: the matrix with the summary of each rule, the failures and the skipped checks,
  /// followed by a line feed.
  public var markdown: String {
    let legend =
      "Checks passed, by rule and engine. ✗: failed; ○: could not be checked here; !: could not run; –: does not apply."
    let failures = failures.map { engine, failure in
      let reproduction = failure.reproduction ?? ""
      let conclusion =
        "- ✗ **\(engine.markdown)**, \(failure.check.markdownCode): \(failure.paragraph.markdown)"
      let evidence = failure.evidence.map { [$0.markdownCodeBlock.indented(by: 2)] } ?? []
      return ([conclusion] + evidence + ["  Reproduce: \(reproduction.markdownCode)"])
        .joined(separator: "\n\n")
    }
    let checkErrors = checkErrors.map { engine, checkError in
      "- ! **\(engine.markdown)**, \(checkError.check.markdownCode): could not run: "
        + checkError.reason.inOneLine.markdown
    }
    let skips = skippedChecks.map {
      "- ○ \($0.engines.joined(separator: ", ").markdown), \($0.check.markdownCode): \($0.reason.inOneLine.markdown)"
    }
    return paragraphs(
      [legend, matrix(includingSummaries: true).markdown] + failures + [
        checkErrors.joined(separator: "\n"), skips.joined(separator: "\n"), conclusion.markdown,
      ]
    ).withVisibleControls
  }
}

extension String {
  /// The text with Markdown's special characters escaped.
  fileprivate var markdown: String {
    unicodeScalars.reduce(into: "") { text, scalar in
      if #"\`*_<[&~|"#.unicodeScalars.contains(scalar) { text += "\\" }
      text.unicodeScalars.append(scalar)
    }
  }

  /// The text, which is one line, between more backticks than it contains in a row.
  fileprivate var markdownCode: String {
    let ticks = String(repeating: "`", count: longestRunOfBackticks + 1)
    let blank = hasPrefix("`") || hasSuffix("`") ? " " : ""
    return ticks + blank + self + blank + ticks
  }

  /// The text as a code block, with fences longer than any inside.
  fileprivate var markdownCodeBlock: String {
    let fence = String(repeating: "`", count: max(3, longestRunOfBackticks + 1))
    return "\(fence)\n\(self)\n\(fence)"
  }

  private var longestRunOfBackticks: Int {
    split { $0 != "`" }.map(\.count).max() ?? 0
  }
}
