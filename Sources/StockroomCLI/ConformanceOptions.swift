import ArgumentParser
import ConformanceKit
import Foundation

/// The options of how hard the checks try that search for faults.
struct BudgetOptions: ParsableArguments {
  private static let usual = ConformanceBudget()

  // Numbers are parsed unconditionally so that a negative one is distinguished from an option.
  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "The operations of each generated and of each concurrent history.", valueName: "number"))
  var operations = usual.operations

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "How long each check of histories goes on, with a new seed for each. (default: one history)",
      valueName: "number"))
  var minutes: Double?

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp("How often a process is killed while it writes.", valueName: "number"))
  var kills = usual.kills

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "How many of the states that a power cut could have left are looked at, or 'all'.",
      valueName: "number|all")
  )
  var powerCuts = PowerCuts(number: usual.powerCuts)

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp("How many random corruptions of files are tried.", valueName: "number"))
  var corruptions = usual.corruptions

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "What every random choice is made from, from 0 to 18446744073709551615.", valueName: "number"),
    transform: parseSeed)
  var seed = usual.seed

  func validate() throws {
    try expect(operations, in: 1...1_000_000_000, "operations")
    try expect(kills, in: 1...1_000_000, "kills")
    if let number = powerCuts.number { try expect(number, in: 1...1_000_000_000, "power cuts") }
    try expect(corruptions, in: 1...100_000_000, "corruptions")
    // A week. Written so that what is not a number does not pass.
    if let minutes, !(minutes > 0 && minutes <= 10_080) {
      throw ValidationError(
        "The number of minutes must be above 0 and at most 10080, not \(minutes.shortest).")
    }
  }

  private func expect(_ number: Int, in range: ClosedRange<Int>, _ what: String) throws {
    guard !range.contains(number) else { return }
    throw ValidationError(
      "The number of \(what) must be between \(range.lowerBound) and \(range.upperBound), not \(number).")
  }

  /// What the options ask for.
  var budget: ConformanceBudget {
    var budget = ConformanceBudget()
    budget.seed = seed
    budget.operations = operations
    budget.duration = minutes.map { .seconds($0 * 60) }
    budget.kills = kills
    budget.powerCuts = powerCuts.number
    budget.corruptions = corruptions
    return budget
  }

  /// The options, as they are written, for a failure with its seed: those that are not as usual.
  func arguments(seed failing: UInt64) -> [String] {
    var arguments = ["--seed", "\(failing)"]
    func add<Value: Equatable>(_ option: String, _ value: Value, unless usual: Value, _ text: String) {
      if value != usual { arguments += [option, text] }
    }
    add("--operations", operations, unless: Self.usual.operations, "\(operations)")
    // A later history of a long search has a seed of its own, and with that it is the first.
    if failing == seed, let minutes { arguments += ["--minutes", minutes.shortest] }
    add("--kills", kills, unless: Self.usual.kills, "\(kills)")
    add("--power-cuts", powerCuts.number, unless: Self.usual.powerCuts, powerCuts.defaultValueDescription)
    add("--corruptions", corruptions, unless: Self.usual.corruptions, "\(corruptions)")
    return arguments
  }
}

/// A number, or all.
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
  /// The number without a fraction if it has none.
  fileprivate var shortest: String {
    Int(exactly: self).map { "\($0)" } ?? "\(self)"
  }
}
