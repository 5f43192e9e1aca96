import ArgumentParser
import ConformanceKit
import Foundation

extension ConformanceBudget.Level: ExpressibleByArgument {}

/// The options for the thoroughness of the checks: the level, numbers, durations and the seed.
struct BudgetOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      """
      Which checks are made, and up to which sizes and counts they go: half a minute on a fast engine (quick), two \
      minutes (standard), or hours (exhaustive), in a release build; three to five times as long on a disk. What a level leaves out is in the results.
      """, valueName: "quick|standard|exhaustive"))
  var level = ConformanceBudget.Level.standard

  // Numbers are parsed unconditionally so that a negative one is distinguished from an option.
  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "How many calls the generated sequences make in total, and how many each check of concurrent calls records. "
        + "(default: \(defaults { "\($0.operations)" }))",
      valueName: "number"))
  var operations: Int?

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "How long each check of concurrent histories runs, with a new seed for each history. (default: one history)",
      valueName: "number"))
  var minutes: Double?

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "How often a process is killed while it writes. (default: \(defaults { "\($0.kills)" }))",
      valueName: "number"))
  var kills: Int?

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "How many of the states that a power cut could have left are checked, or 'all'. "
        + "(default: \(defaults { PowerCuts(number: $0.powerCuts).defaultValueDescription }))",
      valueName: "number|all")
  )
  var powerCuts: PowerCuts?

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "How many random corruptions of files are tried. (default: \(defaults { "\($0.corruptions)" }))",
      valueName: "number"))
  var corruptions: Int?

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "The seed of all random choices, from 0 to 18446744073709551615. (default: 1)",
      valueName: "number"), transform: parseSeed)
  var seed = ConformanceBudget().seed

  /// The values of a setting at every level, in the order of the levels, as a text.
  private static func defaults(_ text: (ConformanceBudget) -> String) -> String {
    let levels = ConformanceBudget.Level.allCases
    return levels.map { "\(text(ConformanceBudget($0))) at \($0)" }.joined(separator: ", ")
  }

  func validate() throws {
    // At most a week. The condition is written so that it fails for NaN.
    if let minutes, !(minutes > 0 && minutes <= 10_080) {
      throw ValidationError(
        "The number of minutes must be above 0 and at most 10080, not \(minutes.shortest).")
    }
    let budget = budget
    try expect(budget.operations, in: 1...1_000_000_000, "operations")
    try expect(budget.kills, in: 1...1_000_000, "kills")
    if let number = budget.powerCuts { try expect(number, in: 1...1_000_000_000, "power cuts") }
    try expect(budget.corruptions, in: 1...100_000_000, "corruptions")
  }

  private func expect(_ number: Int, in range: ClosedRange<Int>, _ what: String) throws {
    guard !range.contains(number) else { return }
    throw ValidationError(
      "The number of \(what) must be between \(range.lowerBound) and \(range.upperBound), not \(number).")
  }

  /// The budget that the options describe.
  var budget: ConformanceBudget {
    var budget = ConformanceBudget(level)
    budget.seed = seed
    budget.operations = operations ?? budget.operations
    budget.duration = minutes.map { .seconds($0 * 60) }
    budget.kills = kills ?? budget.kills
    budget.powerCuts = powerCuts.map(\.number) ?? budget.powerCuts
    budget.corruptions = corruptions ?? budget.corruptions
    return budget
  }

  /// The arguments that reproduce a failure: the level, the seed of the failure, and each option whose value is not the
  /// default of the level.
  func arguments(seed failing: UInt64) -> [String] {
    let (budget, usual) = (budget, ConformanceBudget(level))
    var arguments = ["--level", "\(level)", "--seed", "\(failing)"]
    func add<Value: Equatable>(_ option: String, _ value: KeyPath<ConformanceBudget, Value>, _ text: String) {
      if budget[keyPath: value] != usual[keyPath: value] { arguments += [option, text] }
    }
    add("--operations", \.operations, "\(budget.operations)")
    // With `--minutes`, each history has another seed. A run with the seed of a later history begins with that history,
    // so it needs no duration.
    if failing == seed, let minutes { arguments += ["--minutes", minutes.shortest] }
    add("--kills", \.kills, "\(budget.kills)")
    add("--power-cuts", \.powerCuts, PowerCuts(number: budget.powerCuts).defaultValueDescription)
    add("--corruptions", \.corruptions, "\(budget.corruptions)")
    return arguments
  }
}

/// A number of power cuts, or all.
struct PowerCuts: ExpressibleByArgument {
  /// Nil stands for all.
  let number: Int?

  init(number: Int?) { self.number = number }

  init?(argument: String) {
    if argument != "all", Int(argument) == nil { return nil }
    number = Int(argument)
  }

  var defaultValueDescription: String { number.map { "\($0)" } ?? "all" }
}

extension Double {
  /// The number as text, without a fraction if it is an integer.
  fileprivate var shortest: String {
    Int(exactly: self).map { "\($0)" } ?? "\(self)"
  }
}
