/// Formats the results of the checks of one or several engines.
///
/// ```swift
/// let report = await ConformanceSuite("MyEngine", capabilities: [.persistent]) { try MyEngine(directory: $0) }.run()
/// let results = ConformanceResults([report])
/// print(results.text)
/// try results.junit.write(to: URL(filePath: "conformance.xml"), atomically: true, encoding: .utf8)
/// ```
///
/// Each failure is shown with its complete evidence and how to reproduce it. In all formats except JSON,
/// control characters are escaped as in Swift, such as `\u{1B}`.
public struct ConformanceResults: Sendable {
  /// Returns how to reproduce a failure.
  public typealias Reproduction = @Sendable (ConformanceReport, ConformanceFailure) -> String

  /// The reports, one for each engine, in the order in which they are shown.
  public let reports: [ConformanceReport]

  /// Creates the results of one or several engines.
  ///
  /// - Parameters:
  ///   - reports: A report for each engine.
  ///   - reproduction: Returns how to reproduce a failure in one line, such as a command. By default it names
  ///     the check and the budget.
  public init(_ reports: [ConformanceReport], reproduction: Reproduction? = nil) {
    let reproduction = reproduction ?? Self.reproductionInSwift
    self.reports = reports.map { report in report.reproducible { reproduction(report, $0) } }
  }

  /// Whether no engine failed a check, and every check could run.
  public var isConforming: Bool { reports.allSatisfy(\.isConforming) }

  /// Whether all checks that apply to an engine were run, at the level ``ConformanceBudget/Level/standard``
  /// or above. Only then does ``isConforming`` mean that the engines follow the contract.
  public var isComplete: Bool { reports.allSatisfy(\.isComplete) }

  /// How to reproduce a failure in code, for users of a suite without a command.
  private static func reproductionInSwift(_ report: ConformanceReport, _ failure: ConformanceFailure)
    -> String
  {
    let (budget, usual) = (report.budget, ConformanceBudget(report.budget.level))
    var settings = [
      "budget = .\(budget.level)", "budget.seed = \(failure.seed)",
      "budget.operations = \(budget.operations)",
    ]
    if let duration = budget.duration { settings.append("budget.duration = .seconds(\(duration.inSeconds))") }
    if budget.kills != usual.kills { settings.append("budget.kills = \(budget.kills)") }
    if budget.powerCuts != usual.powerCuts {
      settings.append("budget.powerCuts = \(budget.powerCuts.map { "\($0)" } ?? "nil")")
    }
    if budget.corruptions != usual.corruptions {
      settings.append("budget.corruptions = \(budget.corruptions)")
    }
    return "run(only: [\"\(failure.check)\"]) of the suite, with \(settings.joined(separator: ", "))"
  }
}

// What the formats share.

extension ConformanceResults {
  /// Checks that did not run or were cut short, with the engines that share the reason: a check that was
  /// skipped, the checks left out for lack of a worker process or because of the level, and those that did
  /// not go as far as their level requires.
  struct SkippedCheck {
    let check: String
    let reason: String
    var engines: [String]
  }

  var skippedChecks: [SkippedCheck] {
    var found: [SkippedCheck] = []
    func add(_ check: String, _ reason: String, _ engine: String) {
      if let index = found.firstIndex(where: { $0.check == check && $0.reason == reason }) {
        found[index].engines.append(engine)
      } else {
        found.append(SkippedCheck(check: check, reason: reason, engines: [engine]))
      }
    }
    for report in reports {
      if report.leftOutCount > 0 {
        add("\(report.leftOutCount) checks left out", ConformanceSuite.hasNoWorker, report.name)
      }
      for (check, _, reason) in report.skipped where reason != ConformanceSuite.hasNoWorker {
        add(check, reason, report.name)
      }
      if let sentence = report.shortfallSentence { add("slow calls", sentence, report.name) }
    }
    for report in reports {
      if let sentence = report.levelSentence { add("level \(report.budget.level)", sentence, report.name) }
    }
    return found
  }

  /// Every failure, engine by engine.
  var failures: [(engine: String, failure: ConformanceFailure)] {
    reports.flatMap { report in report.failures.map { (report.name, $0) } }
  }

  /// The checks that could not run, engine by engine.
  var checkErrors: [(engine: String, checkError: ConformanceCheckError)] {
    reports.flatMap { report in report.checkErrors.map { (report.name, $0) } }
  }

  /// Which engines follow the contract and which do not, with totals. For an incomplete run it only says how
  /// many checks passed.
  var conclusion: String {
    let tally = Tally(reports.flatMap(\.results))
    let figures =
      "\(tally.passed) checks passed, \(tally.failed) failed, \(tally.skipped) skipped"
      + (tally.couldNotRun > 0 ? ", \(tally.couldNotRun) could not run" : "")
    let breakers = reports.filter { !$0.failures.isEmpty }.map(\.name)
    if !breakers.isEmpty { return "\(breakers.joined(separator: ", ")): contract broken. \(figures)." }
    if tally.passed == 0 { return "No check could run. \(figures)." }
    if isComplete, tally.couldNotRun == 0 { return "Every engine follows the contract. \(figures)." }
    let applicable = reports.reduce(0) { $0 + $1.applicableCount }
    if let level = reports.map(\.budget.level).min(), reports.allSatisfy(\.isCompleteForLevel),
      tally.couldNotRun == 0
    {
      let passed = tally.skipped == 0 ? "all \(applicable)" : "\(tally.passed) of \(applicable)"
      return
        "Passed \(passed) checks of the level \(level). Only the level \(ConformanceBudget.Level.standard) "
        + "or above shows whether the contract is followed. \(figures)."
    }
    return
      "Passed \(tally.passed) of \(applicable) checks, which does not show whether the contract is followed. "
      + "\(figures)."
  }
}

/// The number of checks with each outcome.
struct Tally {
  let passed: Int
  let failed: Int
  let skipped: Int
  let couldNotRun: Int

  init(_ results: [ConformanceReport.Result]) {
    passed = results.count { $0.outcome == .passed }
    failed = results.count { $0.outcome.failure != nil }
    couldNotRun = results.count { if case .couldNotRun = $0.outcome { true } else { false } }
    skipped = results.count - passed - failed - couldNotRun
  }

  /// The text of a cell of the matrix: how many checks passed, and how many were skipped, failed or could not
  /// run.
  var cell: String {
    let parts = [
      passed > 0 ? "\(passed)" : "", skipped > 0 ? "○ \(skipped)" : "", failed > 0 ? "✗ \(failed)" : "",
      couldNotRun > 0 ? "! \(couldNotRun)" : "",
    ]
    let text = parts.filter { !$0.isEmpty }.joined(separator: " ")
    return text.isEmpty ? "–" : text
  }
}

extension ConformanceReport.Result {
  /// The rule in whose row the result is counted: the broken one, if any.
  var shownRule: ContractRule { outcome.failure?.rule ?? rule }
}

extension ConformanceReport {
  /// The report, with a reproduction for each failure.
  fileprivate func reproducible(by reproduction: (ConformanceFailure) -> String) -> ConformanceReport {
    let results = results.map { result in
      guard case .failed(var failure) = result.outcome else { return result }
      failure.reproduction = reproduction(failure)
      return Result(
        check: result.check, rule: result.rule, expectation: result.expectation, outcome: .failed(failure),
        seconds: result.seconds, shortfall: result.shortfall)
    }
    return ConformanceReport(
      name: name, capabilities: capabilities, budget: budget, results: results,
      applicableCount: applicableCount, leftOutCount: leftOutCount, laterChecks: laterChecks, seconds: seconds
    )
  }
}

extension ConformanceReport {
  /// What the level leaves out, if all checks of the level were requested.
  var levelSentence: String? {
    guard results.count == applicableCount, let limits = budget.level.limits else { return nil }
    let later = laterChecks.sorted { $0.key < $1.key }.map { level, count in
      "\(count) \(count == 1 ? "check runs" : "checks run") only from \(level) on"
    }
    return (later + [limits]).joined(separator: "; ") + "."
  }

  /// The checks that did not go as far as their level requires.
  fileprivate var shortfallSentence: String? {
    let short = results.compactMap { result in result.shortfall.map { "\(result.check) (\($0))" } }
    if short.isEmpty { return nil }
    return "\(short.count) checks did not go as far as the level requires: \(short.joined(separator: ", "))."
  }
}

extension ConformanceBudget.Level {
  /// The limits of the checks of the level, as a clause; nil if no level has higher ones.
  var limits: String? {
    switch self {
    case .quick:
      "at most 4,097 entries and values of 1 MiB in the checks of all sizes, and the fewest calls, rounds and faults in the other checks"
    case .standard:
      "at most 10,001 entries and values of 16 MiB in the checks of all sizes, and fewer calls, rounds and faults in the other checks "
        + "than at exhaustive"
    case .exhaustive: nil
    }
  }
}
