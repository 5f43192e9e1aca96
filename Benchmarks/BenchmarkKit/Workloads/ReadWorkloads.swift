#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

extension Workload {
  static let readOne = Workload(
    "read-one", "Reads every record, one after another, in random order, for the second time."
  ) { run in
    // Otherwise engines that wrote the records long before would read them from the disk, and those that have just
    // written them would read them from memory.
    for (key, _) in run.records.all { _ = try await run.engine.read(key: key) }
    try await readOneByOne(run, run.records.shuffled)
  }

  /// The same number of reads for any number of entries.
  static let readOneOfSome = Workload(
    "read-one-of", "Reads 10,000 records, one after another, in random order."
  ) { run in
    try await readOneByOne(run, Array(run.records.shuffled.prefix(10_000)))
  }

  static let readOneOnMainActor = Workload(
    "read-one-main-actor", "Reads every record, one after another, in random order, from the main actor."
  ) { run in
    try await readOnMainActor(run)
  }

  @MainActor private static func readOnMainActor(_ run: WorkloadRun) async throws {
    try await readOneByOne(run, run.records.shuffled)
  }

  /// Runs on the caller's actor.
  private static func readOneByOne(_ run: WorkloadRun, _ indices: [Int]) async throws {
    let records = run.records
    let values = try await run.measure(operations: indices.count) { latencies in
      let engine = run.engine
      var values: [Data?] = []
      values.reserveCapacity(indices.count)
      for index in indices {
        values.append(try await engine.read(key: records.all[index].key))
        latencies.record()
      }
      return values
    }
    for (value, index) in zip(values, indices) { try records.verify(value, isRecord: index) }
  }

  static func readConcurrently(_ tasks: Int) -> Workload {
    Workload(
      "read-concurrent-\(tasks)",
      "\(tasks) concurrent tasks read every record, one after another, in random order."
    ) { run in
      let records = run.records
      try await run.measure(records.shuffled, by: tasks) { engine, index in
        try await engine.read(key: records.all[index].key)
      } verify: { value, index in
        try records.verify(value, isRecord: index)
      }
    }
  }

  static let readMissing = Workload(
    "read-one-miss", "Reads as many keys as there are records, none of which exists, one after another."
  ) { run in
    let keys = run.records.absentKeys(run.records.count)
    try await run.measure(operations: keys.count) { latencies in
      let engine = run.engine
      for key in keys {
        guard try await engine.read(key: key) == nil else {
          throw WrongAnswer("the key \(key) was not written and has a value")
        }
        latencies.record()
      }
    }
  }

  static let readMany = Workload(
    "read-many", "Reads every record, 1,000 keys at a time, in random order."
  ) { run in
    let records = run.records
    let requests = records.shuffled.chunks(of: 1_000).map { $0.map { records.all[$0].key } }
    let values = try await run.measure(operations: records.count) { latencies in
      let engine = run.engine
      var values: [Data] = []
      values.reserveCapacity(records.count)
      for keys in requests {
        values += try await engine.read(keys: keys)
        latencies.record()
      }
      return values
    }
    try verify(count: values.count, is: records.count)
    for (value, index) in zip(values, records.shuffled) { try records.verify(value, isRecord: index) }
  }

  static let readAll = Workload("read-all", "Reads all records with their keys in one call.") { run in
    let entries = try await run.measure(operations: run.records.count) { latencies in
      let entries = try await run.engine.readAllDataAndKeys()
      latencies.record()
      return entries
    }
    try run.records.verify(entries)
  }

  static let keys = Workload("keys", "Lists all keys in one call.") { run in
    let keys = try await run.measure(operations: run.records.count) { latencies in
      let keys = try await run.engine.allKeys()
      latencies.record()
      return keys
    }
    guard keys.count == run.records.count, Set(keys) == Set(run.records.all.map(\.key)) else {
      throw WrongAnswer("the \(keys.count) keys are not those of the \(run.records.count) records")
    }
  }

  static let count = Workload(
    "count", "Counts the entries, 50 times. An operation is one call."
  ) { run in
    let answers = try await run.measure(operations: 50) { latencies in
      let engine = run.engine
      var answers: [Int] = []
      for _ in 0..<50 {
        answers.append(try await engine.keyCount())
        latencies.record()
      }
      return answers
    }
    for answer in answers { try verify(count: answer, is: run.records.count) }
  }

  static let scan = Workload("scan", "Reads all records in the order of keys, 100 at a time.") { run in
    let records = run.records
    let entries = try await run.measure(operations: records.count) { latencies in
      let engine = run.engine
      var entries: [(key: CacheKey, data: Data)] = []
      var range = KeyRange.all
      // Bounded, since with an engine that ignores the start of the range the loop would not end.
      while entries.count <= records.count {
        let next = try await engine.scan(range, limit: 100)
        latencies.record()
        entries += next
        guard next.count == 100 else { break }
        range.after = next.last?.key
      }
      return entries
    }
    try records.verify(entries)
    for (earlier, later) in zip(entries, entries.dropFirst()) where later.key < earlier.key {
      throw WrongAnswer("the scan returned the key \(later.key) after \(earlier.key)")
    }
  }

  static let open = Workload(
    "open", "Opens the engine with all records and reads one of them. An operation is both together.",
    needs: .persistent
  ) { run in
    try await run.close()
    let value = try await run.measure(operations: 1) { latencies in
      try await run.open()
      let value = try await run.engine.read(key: run.records.all[0].key)
      latencies.record()
      return value
    }
    try run.records.verify(value, isRecord: 0)
  }
}
