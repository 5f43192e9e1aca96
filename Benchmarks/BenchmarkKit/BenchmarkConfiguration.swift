#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// What a ``BenchmarkRunner`` does: how much, how often, where.
public struct BenchmarkConfiguration: Sendable {
  /// How many records there are: 1 to 10,000,000.
  public var entries: Int
  /// The mean size of a value in bytes, from 0 to 64 MiB. Sizes are spread evenly from half of it to one and a
  /// half times.
  public var valueSize: Int
  /// How often each workload is measured on each subject, not counting the warm-up: 1 to 1,000.
  public var repetitions: Int
  /// What the keys, the values and the order of reading are made from. The same seed gives the same records on
  /// every machine.
  public var seed: UInt64
  /// What is measured, in this order.
  public var workloads: [Workload]
  /// Where each subject gets a directory of its own for each repetition, removed afterwards. Made if missing.
  public var directory: URL
  /// What the caller's engines promise of an acknowledged write, for the report.
  public var durability: String?
  /// What the caller's engines are built on, with versions, for the report.
  public var software: [String]?

  /// A configuration. The defaults take five engines through all workloads in about a minute.
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

  /// Throws unless the configuration can be run on this machine.
  ///
  /// - Throws: ``BenchmarkError``, which says which setting is wrong and what is allowed.
  public func validate() throws {
    try Self.require("The number of repetitions", repetitions, in: 1...1_000)
    try Self.require(entries: entries, valueSize: valueSize, of: "")
    for workload in workloads {
      let set = recordSet(of: workload)
      try Self.require(entries: set.entries, valueSize: set.valueSize, of: " of \(workload.name)")
    }

    // The records are in memory once, and once more while what was read is compared with them.
    let available = ProcessInfo.processInfo.physicalMemory / 4
    for set in Set(workloads.map(recordSet)) where UInt64(set.entries * set.valueSize) > available {
      throw BenchmarkError(
        "\(set.entries) entries of \(set.valueSize) bytes are "
          + "\(Units.bytes(UInt64(set.entries * set.valueSize))), more than a quarter of this machine's memory "
          + "(\(Units.bytes(available))).")
    }

    guard !workloads.isEmpty else { throw BenchmarkError("There is no workload to run.") }
    if let name = workloads.map(\.name).firstRepeated {
      throw BenchmarkError("The workload \(name) is listed twice.")
    }
  }

  private static func require(entries: Int, valueSize: Int, of whom: String) throws {
    try require("The number of entries\(whom)", entries, in: 1...10_000_000)
    try require("The value size in bytes\(whom)", valueSize, in: 0...(64 << 20))
  }

  private static func require(_ what: String, _ value: Int, in range: ClosedRange<Int>) throws {
    guard range.contains(value) else {
      throw BenchmarkError(
        "\(what) must be between \(range.lowerBound) and \(range.upperBound), not \(value).")
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
  /// The first element that was there before, if any.
  var firstRepeated: String? {
    var seen: Set<String> = []
    return first { !seen.insert($0).inserted }
  }
}
