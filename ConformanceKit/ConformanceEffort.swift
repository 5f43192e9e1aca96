/// How hard the checks try that search for faults, where others look at examples.
///
/// The default is what fits into a test suite. Raise it for a night of searching:
///
/// ```swift
/// var effort = ConformanceEffort()
/// effort.operations = 1_000_000
/// effort.kills = 500
/// ConformanceSuite("MyEngine", capabilities: [.persistent], effort: effort) { try MyEngine(directory: $0) }
/// ```
public struct ConformanceEffort: Sendable, Hashable, Codable {
  /// What every random choice is made from. The same seed makes the same choices.
  public var seed: UInt64 = 1
  /// The calls of all generated histories together, at least, and those of each check that records what many tasks do.
  public var operations = 2_000
  /// If it is set, each of these checks goes on for as long as this, with new seeds, however many calls that takes.
  public var duration: Duration?
  /// How often a process is killed while it writes.
  public var kills = 10
  /// How many of the states that a power cut could have left are looked at, at most. Nil stands for all of them.
  public var powerCuts: Int? = 200
  /// How many kinds of damage at random places are done to the files of a closed engine.
  public var damages = 60

  /// The effort that fits into a test suite.
  public init() {}
}
