extension ConformanceResults {
  /// The results as JUnit XML for continuous integration systems: a suite for each engine, with a case for
  /// each check.
  public var junit: String {
    let totals = Tally(reports.flatMap(\.results))
    let root = MarkupElement(
      "testsuites",
      [("name", "conformance")] + totals.attributes(seconds: reports.reduce(0) { $0 + $1.seconds }),
      .elements(reports.map(suite)))
    return #"<?xml version="1.0" encoding="UTF-8"?>"# + "\n" + root.lines.joined(separator: "\n") + "\n"
  }

  private func suite(_ report: ConformanceReport) -> MarkupElement {
    let properties = MarkupElement(
      "properties", [],
      .elements(
        [
          property("level", "\(report.budget.level)"),
          property("applicable checks", report.applicableCount),
          property("checks left out for lack of a worker process", report.leftOutCount),
        ]
          + report.laterChecks.sorted { $0.key < $1.key }.map {
            property("checks made from the level \($0.key) on", $0.value)
          }))
    return MarkupElement(
      "testsuite", [("name", report.name)] + Tally(report.results).attributes(seconds: report.seconds),
      .elements([properties] + report.results.map { testCase($0, in: report) }))
  }

  private func property(_ name: String, _ value: some CustomStringConvertible) -> MarkupElement {
    MarkupElement("property", [("name", name), ("value", "\(value)")], .nothing)
  }

  private func testCase(_ result: ConformanceReport.Result, in report: ConformanceReport) -> MarkupElement {
    let content: MarkupElement.Content =
      switch result.outcome {
      case .passed: .nothing
      case .skipped(let reason):
        .elements([MarkupElement("skipped", [("message", reason.inOneLine)], .nothing)])
      case .couldNotRun(let reason):
        .elements([MarkupElement("error", [("message", reason.inOneLine)], .nothing)])
      case .failed(let failure):
        .elements([
          MarkupElement(
            "failure",
            [("message", failure.actual.inOneLine), ("type", failure.rule.rawValue)],
            .text("\(failure)\n\nReproduce: \(failure.reproduction ?? "")"))
        ])
      }
    return MarkupElement(
      "testcase",
      [
        ("name", result.check), ("classname", "\(report.name).\(result.rule)"),
        ("time", result.seconds.inMilliseconds),
      ], content)
  }
}

extension Tally {
  fileprivate func attributes(seconds: Double) -> [(String, String)] {
    [
      ("tests", "\(passed + failed + skipped + couldNotRun)"), ("failures", "\(failed)"),
      ("errors", "\(couldNotRun)"),
      ("skipped", "\(skipped)"), ("time", seconds.inMilliseconds),
    ]
  }
}

extension Double {
  /// Seconds with three decimals and a decimal point in every locale.
  fileprivate var inMilliseconds: String {
    let milliseconds = isFinite ? Int(Swift.min(Swift.max(self * 1_000, 0), 1e15)) : 0
    let fraction = "\(1_000 + milliseconds % 1_000)".dropFirst()
    return "\(milliseconds / 1_000).\(fraction)"
  }
}
