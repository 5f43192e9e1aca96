/// How thorough the checks are: a level, with numbers that can be changed.
///
/// ```swift
/// ConformanceSuite("MyEngine", budget: .quick) { try MyEngine(directory: $0) }
/// ```
///
/// To search for a whole night, take a level and raise its numbers:
///
/// ```swift
/// var budget = ConformanceBudget.exhaustive
/// budget.operations = 1_000_000
/// budget.kills = 500
/// ```
public struct ConformanceBudget: Sendable, Hashable {
  /// Determines which checks run, and up to which sizes, counts and durations.
  public enum Level: String, Sendable, Hashable, Codable, CodingKeyRepresentable, CaseIterable, Comparable {
    /// About half a minute on a fast engine, three times as long on a disk: for every run of a test suite.
    case quick
    /// About two minutes on a fast engine, five times as long on a disk: before a change is merged.
    case standard
    /// Hours: before a release.
    case exhaustive

    /// Whether the first level is less thorough than the second.
    public static func < (first: Level, second: Level) -> Bool {
      allCases.firstIndex(of: first) ?? 0 < allCases.firstIndex(of: second) ?? 0
    }
  }

  /// The budget of ``Level/quick``.
  public static let quick = ConformanceBudget(.quick)
  /// The budget of ``Level/standard``.
  public static let standard = ConformanceBudget(.standard)
  /// The budget of ``Level/exhaustive``.
  public static let exhaustive = ConformanceBudget(.exhaustive)

  /// Determines which checks run, and how thorough they are.
  public let level: Level
  /// The seed of all random choices. The same seed makes the same choices.
  public var seed: UInt64 = 1
  /// The minimum number of calls in all generated sequences together, and in each check that records the
  /// calls of many tasks.
  public var operations = 2_000
  /// If set, each check of generated sequences or of recorded calls runs for this long, with new seeds, regardless of
  /// ``operations``.
  public var duration: Duration?
  /// The number of times a process is killed while it writes.
  public var kills = 10
  /// The maximum number of states after a power cut that are checked, or nil for no limit.
  public var powerCuts: Int? = 200
  /// The number of random corruptions of the files of a closed engine.
  public var corruptions = 60

  /// The budget of a level.
  public init(_ level: Level = .standard) {
    self.level = level
    switch level {
    case .quick: (operations, kills, powerCuts, corruptions) = (500, 3, 40, 20)
    case .standard: break
    case .exhaustive: (operations, kills, powerCuts, corruptions) = (200_000, 300, nil, 2_000)
    }
  }
}

extension ConformanceBudget: Codable {
  private enum CodingKeys: CodingKey {
    case level, seed, operations, seconds, kills, powerCuts, corruptions
  }

  /// Decodes what ``encode(to:)`` encodes.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    level = try container.decode(Level.self, forKey: .level)
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
    try container.encode(level, forKey: .level)
    try container.encode(seed, forKey: .seed)
    try container.encode(operations, forKey: .operations)
    try container.encodeIfPresent(duration?.inSeconds, forKey: .seconds)
    try container.encode(kills, forKey: .kills)
    try container.encodeIfPresent(powerCuts, forKey: .powerCuts)
    try container.encode(corruptions, forKey: .corruptions)
  }
}
