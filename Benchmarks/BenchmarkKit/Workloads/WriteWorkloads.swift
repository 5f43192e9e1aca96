#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

extension Workload {
  static let writeOne = Workload(
    "write-one", "Writes new entries one after another, a twentieth of the records.",
    startsFrom: .nothing, leaves: .somethingElse
  ) { run in
    let written = Array(run.records.all.prefix(oneByOne(run.records.count)))
    try await writeOneByOne(run, written)
    try await run.engine.verifyContents(written)
  }

  private static func writeOneByOne(
    _ run: WorkloadRun, _ entries: [(key: CacheKey, data: Data)]
  ) async throws {
    try await run.measure(operations: entries.count) { latencies in
      let engine = run.engine
      for (key, data) in entries {
        try await engine.write(data, key: key)
        latencies.record()
      }
    }
  }

  static func writeConcurrently(_ tasks: Int) -> Workload {
    Workload(
      "write-concurrent-\(tasks)",
      "\(tasks) \(tasks == 1 ? "task writes" : "concurrent tasks write") new entries one by one, a tenth of the records.",
      startsFrom: .nothing, leaves: .somethingElse
    ) { run in
      let written = Array(run.records.all.prefix(max(tasks, run.records.count / 10)))
      try await run.measure(written, by: tasks) { engine, record in
        try await engine.write(record.data, key: record.key)
      }
      try await run.engine.verifyContents(written)
    }
  }

  static func writeBatches(of size: Int) -> Workload {
    Workload(
      "write-batch-\(size)", "Writes all records in batches of \(size).", startsFrom: .nothing
    ) { run in
      let batches = run.records.all.chunks(of: size).map(Array.init)
      try await run.measure(operations: run.records.count) { latencies in
        let engine = run.engine
        for batch in batches {
          try await engine.write(batch)
          latencies.record()
        }
      }
      try await run.engine.verifyContents(run.records.all)
    }
  }

  static let overwrite = Workload(
    "overwrite", "Writes other values to a twentieth of the records, one after another, in random order.",
    leaves: .somethingElse
  ) { run in
    let values = run.records.newValues()
    let written = run.records.shuffled.prefix(oneByOne(run.records.count)).map { values[$0] }
    try await writeOneByOne(run, written)
    var expected = run.records.all
    for index in run.records.shuffled.prefix(written.count) { expected[index] = values[index] }
    try await run.engine.verifyContents(expected)
  }

  /// The same number of writes for any number of entries; they are removed afterwards.
  static let writeOneBesideOthers = Workload(
    "write-one-beside", "Writes 500 new entries one after another, beside the records."
  ) { run in
    let records = run.records
    let written = records.absentKeys(500).enumerated().map { index, key in
      (key: key, data: records.all[index % records.count].data)
    }
    try await writeOneByOne(run, written)
    try verify(count: try await run.engine.keyCount(), is: records.count + written.count)
    try await run.engine.verifyContains(written)
    try await run.engine.remove(keys: written.map(\.key))
  }

  static let removeOne = Workload(
    "remove-one", "Removes entries one after another, a twentieth of the records.", leaves: .somethingElse
  ) { run in
    let removed = oneByOne(run.records.count)
    try await run.measure(operations: removed) { latencies in
      let engine = run.engine
      for (key, _) in run.records.all.prefix(removed) {
        try await engine.remove(key: key)
        latencies.record()
      }
    }
    try await run.engine.verifyContents(Array(run.records.all.dropFirst(removed)))
  }

  static let removeBatch = Workload(
    "remove-batch", "Removes half of the records, 1,000 keys at a time.", leaves: .somethingElse
  ) { run in
    let removed = (run.records.count + 1) / 2
    let batches = run.records.all.prefix(removed).map(\.key).chunks(of: 1_000).map(Array.init)
    try await run.measure(operations: removed) { latencies in
      let engine = run.engine
      for keys in batches {
        try await engine.remove(keys: keys)
        latencies.record()
      }
    }
    try await run.engine.verifyContents(Array(run.records.all.dropFirst(removed)))
  }

  static let removeAll = Workload(
    "remove-all", "Removes everything with one call.", leaves: .nothing
  ) { run in
    try await run.measure(operations: run.records.count) { latencies in
      try await run.engine.removeAllData()
      latencies.record()
    }
    try await run.engine.verifyContents([])
  }
}
