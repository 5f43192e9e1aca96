import BenchmarkKit

extension Limit {
  /// Every limit. The workloads run in the order in which they first occur here. Those of `rawC` are first, so that an
  /// engine and its C library have run the same workloads before each of these comparisons.
  public static let all =
    rawC + postgreSQL + onMainActor + memory + files + concurrency + transactions + subscribers + heartbeat
    + grdb
    + grdbAwaited
    + store + growth

  // MARK: Against the C libraries

  private static let rawC = [
    ("write-one", 1.25, 1.25, 1.25),
    ("write-batch-10000", 1.3, 1.5, 2.5),
    ("read-one", 1.3, 2.0, 1.5),
    ("read-many", 1.3, 1.5, 1.5),
    ("read-all", 1.3, 1.5, 1.5),
    ("transaction", 1.3, 1.3, 1.3),
  ].flatMap { workload, sqlite, lmdb, levelDB in
    [("SQLite", sqlite), ("LMDB", lmdb), ("LevelDB", levelDB)].map { engine, bound in
      time(
        "\(engine.lowercased())/\(workload)", of: Side(engine, workload),
        over: Side("raw \(engine)", workload), atMost: bound)
    }
  }

  private static let postgreSQL =
    [
      ("write-one", 1.25), ("write-batch-10000", 1.2), ("read-one", 1.3), ("read-many", 1.3),
      ("read-all", 1.3),
    ].map { workload, bound in
      time(
        "postgresql/\(workload)", of: Side("PostgreSQL", workload), over: Side("raw libpq", workload),
        atMost: bound)
    } + [
      time(
        "postgresql/write-batch-10000-copy", of: Side("PostgreSQL", "write-batch-10000"),
        over: Side("raw libpq, COPY", "write-batch-10000"), atMost: 1.2),
      throughput(
        "postgresql/write-concurrent", of: Side("PostgreSQL", "write-concurrent-64"),
        over: Side("raw libpq", "write-one"), atLeast: 15),
      throughput(
        "postgresql/read-concurrent", of: Side("PostgreSQL", "read-concurrent-64"),
        over: Side("raw libpq", "read-one"), atLeast: 3),
    ]

  private static let concurrency = ["SQLite", "LMDB", "LevelDB"].map { engine in
    throughput(
      "concurrency/\(engine.lowercased())", of: Side(engine, "write-concurrent-64"),
      over: Side("raw \(engine)", "write-one"), atLeast: 15)
  }

  // MARK: Against other peers

  /// GRDB's synchronous calls, which block the thread.
  private static let grdb = againstGRDB("grdb", "GRDB")

  /// GRDB's asynchronous calls, as Stockroom's are.
  private static let grdbAwaited = againstGRDB("grdb-awaited", "GRDB awaited")

  /// Not slower in any workload, and at least 1.5 times as fast in the most frequent ones.
  private static func againstGRDB(_ name: String, _ peer: String) -> [Limit] {
    (Workload.named("calls") ?? []).map(\.name).map { workload in
      let (measured, reference) = (Side("SQLite", workload), Side(peer, workload))
      return ["read-one", "write-batch-10000"].contains(workload)
        ? throughput("\(name)/\(workload)", of: measured, over: reference, atLeast: 1.5)
        : time("\(name)/\(workload)", of: measured, over: reference, atMost: 1)
    }
  }

  private static let files = [
    // The peer writes each file atomically and syncs it.
    throughput(
      "files/write-batch-10000", of: Side("Files", "write-batch-10000"),
      over: Side("POSIX files", "write-one"), atLeast: 5),
    time(
      "files/read-one", of: Side("Files", "read-one"), over: Side("POSIX files", "read-one"), atMost: 1.5),
  ]

  private static let memory = [
    time("memory/read-one", of: Side("Memory", "read-one"), over: Side("Dictionary", "read-one"), atMost: 3)
  ]

  // MARK: Against other workloads of the same engine

  private static let onMainActor = ["Memory", "LMDB"].map { engine in
    time(
      "main-actor/\(engine.lowercased())", of: Side(engine, "read-one-main-actor"),
      over: Side(engine, "read-one"), atMost: 3)
  }

  /// 64 tasks against one.
  private static let transactions = ["SQLite", "LMDB", "LevelDB"].map { engine in
    throughput(
      "concurrent-transactions/\(engine.lowercased())", of: Side(engine, "transaction-64"),
      over: Side(engine, "transaction"), atLeast: 10)
  }

  /// The cost of a subscriber to the changes for writes.
  private static let subscribers = ["Memory", "Files", "SQLite", "LMDB", "LevelDB"].flatMap { engine in
    ["write-one", "write-batch-10000"].map { workload in
      time(
        "subscriber/\(engine.lowercased())/\(workload)", of: Side(engine, "\(workload)-watched"),
        over: Side(engine, workload), atMost: 1.1)
    }
  }

  private static let heartbeat = ["Memory", "Files", "SQLite", "LMDB", "LevelDB"].map { engine in
    stall("heartbeat/\(engine.lowercased())", of: Side(engine, "write-concurrent-64"), atMost: 20)
  }

  /// The cost of a store, on the memory engine.
  private static let store = [
    time(
      "store/insert-one", of: Side("Memory", "store-insert-one-100000"),
      over: Side("Memory", "store-insert-one-1000"), atMost: 1.2),
    time(
      "store/load-10000", of: Side("Memory", "store-load-10000"), over: Side("Memory", "loop-load-10000"),
      atMost: 0.6),
    time(
      "store/load-100000", of: Side("Memory", "store-load-100000"), over: Side("Memory", "loop-load-100000"),
      atMost: 0.6),
    time(
      "store/insert-many", of: Side("Memory", "store-insert-many"), over: Side("Memory", "loop-insert-many"),
      atMost: 1.3),
  ]

  private static let growth = ["Memory", "SQLite", "LMDB", "LevelDB"].flatMap { engine in
    [("read-one", "read-one-of"), ("write-one", "write-one-beside")].map { name, workload in
      time(
        "growth/\(engine.lowercased())/\(name)", of: Side(engine, "\(workload)-1000000"),
        over: Side(engine, "\(workload)-10000"), atMost: 2)
    }
  }
}

extension Sequence<Limit> {
  /// The workloads of all limits, in the order in which they first occur.
  public var workloads: [Workload] {
    var names: Set<String> = []
    return flatMap(\.sides).filter { names.insert($0.workload).inserted }.compactMap { side in
      Workload.all.first { $0.name == side.workload }
    }
  }

  /// The workloads to run on each subject.
  public var workloadsOfSubjects: [String: Set<String>] {
    reduce(into: [:]) { workloads, limit in
      for side in limit.sides { workloads[side.subject, default: []].insert(side.workload) }
    }
  }
}
