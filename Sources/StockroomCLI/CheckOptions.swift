import ArgumentParser
import ConformanceKit
import StockroomCore

/// The options that select checks.
struct CheckOptions: ParsableArguments {
  @Option(
    name: .customLong("check"),
    help: ArgumentHelp("A check to run; repeat it for more. (default: all)", valueName: "id"))
  var checks: [String] = []

  @Option(
    name: .customLong("rule"),
    help: ArgumentHelp(
      "A rule to check, such as W2; repeat it for more. (default: all)", valueName: "rule"))
  var rules: [String] = []

  var isAll: Bool { checks.isEmpty && rules.isEmpty }

  func validate() throws {
    if checks.contains("") { throw ValidationError("The name for --check is empty.") }
    if rules.contains("") { throw ValidationError("The name for --rule is empty.") }
    for rule in rules where ContractRule(rawValue: rule.uppercased()) == nil {
      let known = ContractRule.allCases.map(\.rawValue).joined(separator: ", ")
      throw ValidationError("There is no rule called \(rule). Rules: \(known).")
    }
  }

  /// Throws unless the suites contain the selected checks.
  ///
  /// - Parameter level: The level of the suites, for the message.
  /// - Throws: `ValidationError`.
  func validate(for suites: [ConformanceSuite], at level: ConformanceBudget.Level) throws {
    for check in checks where !suites.contains(where: { $0.checks.contains { $0.id == check } }) {
      let isLater = suites.contains { $0.checksLeftOut.contains { $0.id == check } }
      let similar = check.mostSimilar(in: suites.flatMap { $0.checks.map(\.id) })
      let suggestion = similar.map { " Did you mean \($0)?" } ?? ""
      throw ValidationError(
        isLater
          ? "The check \(check) does not run at the level \(level), only at a higher one."
          : "There is no check called \(check) for these engines.\(suggestion) "
            + "`stockroom conformance --list` lists them.")
    }
    if run(of: suites).listedChecks.isEmpty {
      throw ValidationError("No check of these rules applies to these engines.")
    }
  }

  /// The selected checks of the suites.
  ///
  /// - Parameter suites: The suites of the engines that can be used on this machine.
  /// - Throws: `StorageError` with code `unsupported` if the suites contain none of the selected checks.
  func nonemptyRun(of suites: [ConformanceSuite]) throws -> ConformanceRun {
    let run = run(of: suites)
    if run.listedChecks.isEmpty {
      throw StorageError(.unsupported, "No check of these rules can run on this machine.")
    }
    return run
  }

  func run(of suites: [ConformanceSuite]) -> ConformanceRun {
    ConformanceRun(
      suites, checks: checks, rules: rules.compactMap { ContractRule(rawValue: $0.uppercased()) })
  }
}
