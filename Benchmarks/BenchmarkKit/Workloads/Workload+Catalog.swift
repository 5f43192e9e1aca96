extension Workload {
  /// Workloads that are selected together by one name.
  public struct Group: Sendable {
    /// The name by which the group is selected.
    public let name: String
    /// The quantity that it measures, and how long that takes with the built-in engines without PostgreSQL
    /// and the default configuration.
    public let summary: String
    /// The workloads of the group, in the order in which they run.
    public let workloads: [Workload]
  }

  /// Every group. A workload may belong to several.
  public static let groups: [Group] = [
    Group(
      name: "standard", summary: "The most important calls, in about a minute. The default.",
      workloads: standard),
    Group(name: "calls", summary: "Every kind of call of an engine. About 2 minutes.", workloads: calls),
    Group(
      name: "tasks",
      summary: "Durable writes by 1 to 256 concurrent tasks, and reads by 64. Less than a minute.",
      workloads: concurrentWrites + [readConcurrently(64)]),
    Group(
      name: "transactions", summary: "Transactions by one task and by 64. Less than a minute.",
      workloads: [transactions(1), transactions(64)]),
    Group(
      name: "changes",
      summary:
        "What a subscriber to changes costs, and how soon a store shows another process's. About 4 minutes.",
      workloads: [writeOneWatched, writeBatchesWatched, follow(among: 100_000)]),
    Group(name: "sizes", summary: "Values of 100 B to 1 MB. About 3 minutes.", workloads: valueSizes),
    Group(
      name: "growth",
      summary: "Reading and writing one entry beside 10,000 to 1,000,000 others. More than 4 minutes.",
      workloads: growth),
    Group(
      name: "ycsb",
      summary: "A to F of the Yahoo! Cloud Serving Benchmark, records of 1 KB. About 3 minutes.",
      workloads: ycsb
    ),
    Group(name: "store", summary: "A store in front of the engine. More than 4 minutes.", workloads: store),
    Group(
      name: "headline",
      summary: "Loading 10,000 and writing 5,000 objects, as object stores advertise it. About a minute.",
      workloads: headline),
  ]

  /// The built-in workloads, each once, in the order of their groups.
  public static let all: [Workload] = {
    var names: Set<String> = []
    return groups.flatMap(\.workloads).filter { names.insert($0.name).inserted }
  }()

  /// The workloads that run if none are selected.
  public static let standard: [Workload] = [
    writeOne, writeConcurrently(64), writeBatches(of: 10_000), readOne, readMissing, readMany, readAll, scan,
    count, overwrite, removeOne,
  ]

  /// The workload or the group with this name, or all workloads for `all`; nil if there is none.
  public static func named(_ name: String) -> [Workload]? {
    if name == "all" { return all }
    if let group = groups.first(where: { $0.name == name }) { return group.workloads }
    return all.first { $0.name == name }.map { [$0] }
  }

  // In this order the records have to be rewritten between workloads as rarely as possible, which shortens a run.

  private static let calls: [Workload] = [
    writeOne, writeConcurrently(64), writeBatches(of: 100), writeBatches(of: 10_000), readOne, readMissing,
    readOneOnMainActor, readMany, readAll, keys, count, scan, open, overwrite, removeOne, removeBatch,
    removeAll,
  ]

  private static let concurrentWrites: [Workload] = [1, 4, 16, 64, 256].map(writeConcurrently)

  private static let valueSizes: [Workload] = [
    (name: "100B", size: 100, entries: 20_000), ("1KB", 1_000, 20_000), ("16KB", 16_000, 2_000),
    ("1MB", 1_000_000, 50),
  ].flatMap { name, size, entries in
    [writeBatches(of: 10_000), readOne].map {
      $0.with(name: "\($0.name)-\(name)", entries: entries, valueSize: size)
    }
  }

  private static let growth: [Workload] = [10_000, 100_000, 1_000_000].flatMap { (entries: Int) in
    [readOneOfSome, writeOneBesideOthers].map {
      $0.with(name: "\($0.name)-\(entries)", entries: entries, valueSize: 100)
    }
  }
}

/// The number of entries that a workload writes or removes one by one: a twentieth of the records, because each durable
/// write waits for the disk. Unless the summary of a workload says otherwise, an operation is one entry, so that
/// `read-one` and `read-all` can be compared.
func oneByOne(_ entries: Int) -> Int { max(1, entries / 20) }

extension RandomAccessCollection where Index == Int {
  /// Slices of `size` elements; the last one can be shorter.
  func chunks(of size: Int) -> [SubSequence] {
    stride(from: startIndex, to: endIndex, by: size).map { self[$0..<Swift.min($0 + size, endIndex)] }
  }
}
