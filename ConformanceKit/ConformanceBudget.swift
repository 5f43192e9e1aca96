/// How much the checks do that search for faults, where others look at examples.
///
/// The default is what fits into a test suite. Raise it for a night of searching:
///
/// ```swift
/// var budget = ConformanceBudget()
/// budget.operations = 1_000_000
/// budget.kills = 500
/// ConformanceSuite("MyEngine", capabilities: [.persistent], budget: budget) { try MyEngine(directory: $0) }
/// ```
public struct ConformanceBudget: Sendable, Hashable {
  /// What every random choice is made from. The same seed makes the same choices.
  public var seed: UInt64 = 1
  /// The calls of all generated sequences together, at least, and those of each check that records what many tasks do.
  public var operations = 2_000
  /// If it is set, each of these checks goes on for as long as this, with new seeds, however many calls that takes.
  public var duration: Duration?
  /// How often a process is killed while it writes.
  public var kills = 10
  /// How many of the states that a power cut could have left are looked at, at most. Nil stands for all of them.
  public var powerCuts: Int? = 200
  /// How many random corruptions of the files of a closed engine are tried.
  public var corruptions = 60

  /// The budget that fits into a test suite.
  public init() {}
}

extension ConformanceBudget: Codable {
  private enum CodingKeys: CodingKey {
    case seed, operations, seconds, kills, powerCuts, corruptions
  }

  /// Decodes what ``encode(to:)`` wrote.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    seed = try container.decode(UInt64.self, forKey: .seed)
    operations = try container.decode(Int.self, forKey: .operations)
    duration = try container.decodeIfPresent(Double.self, forKey: .seconds).map { .seconds($0) }
    kills = try container.decode(Int.self, forKey: .kills)
    powerCuts = try container.decodeIfPresent(Int.self, forKey: .powerCuts)
    corruptions = try container.decode(Int.self, forKey: .corruptions)
  }

  /// Encodes all properties, the ``duration`` as `seconds`.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(seed, forKey: .seed)
    try container.encode(operations, forKey: .operations)
    try container.encodeIfPresent(duration?.inSeconds, forKey: .seconds)
    try container.encode(kills, forKey: .kills)
    try container.encodeIfPresent(powerCuts, forKey: .powerCuts)
    try container.encode(corruptions, forKey: .corruptions)
  }
}
