/// What the checks of one engine, or of several, have found, to be shown.
///
/// ```swift
/// let report = await ConformanceSuite("MyEngine", capabilities: [.persistent]) { try MyEngine(directory: $0) }.run()
/// let results = ConformanceResults([report])
/// print(results.text)
/// try results.junit.write(to: URL(filePath: "conformance.xml"), atomically: true, encoding: .utf8)
/// ```
///
/// A failure is shown with its evidence, whole, and with what makes the check fail again. In all formats but JSON control
/// characters appear as Swift writes them, such as `\u{1B}`.
public struct ConformanceResults: Sendable {
  /// Says how to make one failure happen again.
  public typealias Reproduction = @Sendable (ConformanceReport, ConformanceFailure) -> String

  /// The reports, each about one engine, in the order in which they are shown.
  public let reports: [ConformanceReport]

  /// The results of several engines, or of one.
  ///
  /// - Parameters:
  ///   - reports: A report about each engine.
  ///   - reproduction: Says in a line how to make a failure happen again, such as a command. By default it names the
  ///     check and the budget.
  public init(_ reports: [ConformanceReport], reproduction: Reproduction? = nil) {
    let reproduction = reproduction ?? Self.reproductionInSwift
    self.reports = reports.map { report in report.reproducible { reproduction(report, $0) } }
  }

  /// Whether no engine failed any check, and no check failed itself.
  public var isConforming: Bool { reports.allSatisfy(\.isConforming) }

  /// Whether no check was left out that applies to an engine, at the level ``ConformanceBudget/Level/standard`` or above.
  /// Only then does ``isConforming`` say that the engines keep the contract.
  public var isComplete: Bool { reports.allSatisfy(\.isComplete) }

  /// What makes a failure happen again, for those who have a suite and no command.
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
  /// What was not done, with the engines, as one reason mostly holds for several: a check that was skipped, those that were
  /// left out for lack of a worker process or are made at a higher level only, and those that went less far than their level.
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

  /// The checks that failed themselves, engine by engine.
  var checkErrors: [(engine: String, checkError: ConformanceCheckError)] {
    reports.flatMap { report in report.checkErrors.map { (report.name, $0) } }
  }

  /// One sentence: who keeps the contract and who does not, with figures. Of checks that are not all there are it says no
  /// more than how many were passed.
  var conclusion: String {
    let tally = Tally(reports.flatMap(\.results))
    let figures =
      "\(tally.passed) checks passed, \(tally.failed) failed, \(tally.skipped) skipped"
      + (tally.couldNotRun > 0 ? ", \(tally.couldNotRun) could not run" : "")
    let breakers = reports.filter { !$0.failures.isEmpty }.map(\.name)
    if !breakers.isEmpty { return "\(breakers.joined(separator: ", ")): contract broken. \(figures)." }
    if tally.passed == 0 { return "No check could be made. \(figures)." }
    if isComplete, tally.couldNotRun == 0 { return "Every engine keeps the contract. \(figures)." }
    let applicable = reports.reduce(0) { $0 + $1.applicableCount }
    if let level = reports.map(\.budget.level).min(), reports.allSatisfy(\.isCompleteForLevel),
      tally.couldNotRun == 0
    {
      let passed = tally.skipped == 0 ? "all \(applicable)" : "\(tally.passed) of \(applicable)"
      return
        "Passed \(passed) checks of the level \(level); whether the contract is kept shows from the level "
        + "\(ConformanceBudget.Level.standard) on. \(figures)."
    }
    return
      "Passed \(tally.passed) of \(applicable) checks, which does not show whether the contract is kept. \(figures)."
  }
}

/// How often checks ended in each way.
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

  /// What a cell of the matrix says: how many checks were passed, and whether others were not.
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
  /// The rule in whose row the result is counted: the one that is broken, if any is.
  var shownRule: ContractRule { outcome.failure?.rule ?? rule }
}

extension ConformanceReport {
  /// The report, in which each failure says how to make it happen again.
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
  /// What the level leaves out, if every check of the level was asked for.
  var levelSentence: String? {
    guard results.count == applicableCount, let limits = budget.level.limits else { return nil }
    let later = laterChecks.sorted { $0.key < $1.key }.map { level, count in
      "\(count) \(count == 1 ? "check is" : "checks are") made from \(level) on"
    }
    return (later + [limits]).joined(separator: "; ") + "."
  }

  /// Which checks went less far than their level has them go.
  fileprivate var shortfallSentence: String? {
    let short = results.compactMap { result in result.shortfall.map { "\(result.check) (\($0))" } }
    if short.isEmpty { return nil }
    return "\(short.count) checks went less far than the level has them go: \(short.joined(separator: ", "))."
  }
}

extension ConformanceBudget.Level {
  /// How far the checks of the level go, as a clause; nil if no level goes further.
  var limits: String? {
    switch self {
    case .quick:
      "sequences of calls go up to 2,000, stores to 4,097 entries, values of any size to 1 MiB, system faults to 6"
    case .standard:
      "sequences of calls go up to 70,000, stores to 12,000 entries, values of any size to 16 MiB, system faults to 90"
    case .exhaustive: nil
    }
  }
}
