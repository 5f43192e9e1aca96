#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The records, workloads and repetitions of a ``BenchmarkRunner``, and where it keeps the data.
public struct BenchmarkConfiguration: Sendable {
  /// The number of records: 1 to 10,000,000.
  public var entries: Int
  /// The mean size of a value in bytes, from 0 to 64 MiB. Sizes are uniformly distributed between half of it and
  /// one and a half times.
  public var valueSize: Int
  /// The number of measurements of each workload on each subject, without the warm-up: 1 to 1,000.
  public var repetitions: Int
  /// The seed of the random keys, values and read order. The same seed generates the same records on every machine.
  public var seed: UInt64
  /// The workloads, in the order in which they run.
  public var workloads: [Workload]
  /// The parent of the engines' directories: one for each subject and repetition, removed afterwards. Created if
  /// missing.
  public var directory: URL
  /// The durability of an acknowledged write, for the report.
  public var durability: String?
  /// The libraries that the engines use, with versions, for the report.
  public var software: [String]?

  /// Creates a configuration. With the defaults, the built-in engines without PostgreSQL take about a minute.
  public init(
    entries: Int = 5_000, valueSize: Int = 1_024, repetitions: Int = 5, seed: UInt64 = 1,
    workloads: [Workload] = Workload.standard, directory: URL = FileManager.default.temporaryDirectory,
    durability: String? = nil, software: [String]? = nil
  ) {
    self.entries = entries
    self.valueSize = valueSize
    self.repetitions = repetitions
    self.seed = seed
    self.workloads = workloads
    self.directory = directory
    self.durability = durability
    self.software = software
  }

  /// Checks that the configuration can run on this machine.
  ///
  /// - Throws: ``BenchmarkError``, which names the setting and the values that are allowed.
  public func validate() throws {
    try Self.require("The number of repetitions", repetitions, in: 1...1_000)
    try Self.require(entries: entries, valueSize: valueSize, of: "")
    for workload in workloads {
      let set = recordSet(of: workload)
      try Self.require(entries: set.entries, valueSize: set.valueSize, of: " of \(workload.name)")
    }

    // The process holds the records of all workloads once, and some a second time while results are compared with them.
    let available = ProcessInfo.processInfo.physicalMemory / 4
    let sets = Set(workloads.map(recordSet))
    let needed = sets.reduce(0) { $0 + UInt64($1.entries * $1.valueSize) }
    if needed > available {
      let records = sets.map { "\($0.entries) entries of \($0.valueSize) bytes" }.sorted()
      throw BenchmarkError(
        "\(records.joined(separator: ", ")) are \(Units.bytes(needed)), more than a quarter of this machine's "
          + "memory (\(Units.bytes(available))).")
    }

    guard !workloads.isEmpty else { throw BenchmarkError("No workload is selected.") }
    if let name = workloads.map(\.name).firstRepeated {
      throw BenchmarkError("The workload \(name) is listed twice.")
    }
  }

  private static func require(entries: Int, valueSize: Int, of owner: String) throws {
    try require("The number of entries\(owner)", entries, in: 1...10_000_000)
    try require("The value size in bytes\(owner)", valueSize, in: 0...(64 << 20))
  }

  private static func require(_ name: String, _ value: Int, in range: ClosedRange<Int>) throws {
    guard range.contains(value) else {
      throw BenchmarkError(
        "\(name) must be between \(range.lowerBound) and \(range.upperBound), not \(value).")
    }
  }
}

extension BenchmarkConfiguration {
  /// The records of a workload.
  func recordSet(of workload: Workload) -> RecordSet {
    RecordSet(
      entries: workload.entries ?? entries, valueSize: workload.valueSize ?? valueSize, seed: seed)
  }
}

extension Sequence<String> {
  /// The first element that equals an earlier one.
  var firstRepeated: String? {
    var seen: Set<String> = []
    return first { !seen.insert($0).inserted }
  }
}
