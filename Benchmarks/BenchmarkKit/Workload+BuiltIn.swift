#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// The order matters for the length of a run only: as it is, each repetition loads the records just once, and
// that is the workload `write-batch`.

extension Workload {
  /// The built-in workloads, in the order in which they run by default.
  ///
  /// An operation is always one entry, so that the time of `read-one` can be compared with that of `read-all`;
  /// only for `count` it is one call. A durable write waits for the disk, so those that do it one by one work
  /// on a part of the records.
  public static let all: [Workload] = [
    Workload(
      "write-one", "Writes new entries one after another, a twentieth of the records.",
      startsFrom: .nothing, leaves: .somethingElse, operations: oneByOne
    ) { engine, records in
      let written = records.all.prefix(oneByOne(records.count))
      for (key, data) in written { try await engine.write(data, key: key) }
      return { try await engine.holds(Array(written)) }
    },

    Workload(
      "write-concurrent", "\(tasks) tasks at a time write new entries one by one, a tenth of the records.",
      startsFrom: .nothing, leaves: .somethingElse, operations: concurrent
    ) { engine, records in
      let written = records.all.prefix(concurrent(records.count))
      try await withThrowingTaskGroup { group in
        for task in 0..<tasks {
          group.addTask {
            for index in stride(from: task, to: written.count, by: tasks) {
              try await engine.write(written[index].data, key: written[index].key)
            }
          }
        }
        try await group.waitForAll()
      }
      return { try await engine.holds(Array(written)) }
    },

    Workload(
      "write-batch", "Writes all records in batches of \(batch).",
      startsFrom: .nothing, leaves: .records, operations: everything
    ) { engine, records in
      for batch in records.all.chunks(of: batch) { try await engine.write(Array(batch)) }
      return { try await engine.holds(records.all) }
    },

    Workload(
      "read-one", "Reads every record, one after another, in random order.",
      startsFrom: .records, leaves: .records, operations: everything
    ) { engine, records in
      var values: [Data?] = []
      values.reserveCapacity(records.count)
      for index in records.shuffled { values.append(try await engine.read(key: records.all[index].key)) }
      return { [values] in
        for (value, index) in zip(values, records.shuffled) { try records.verify(value, isRecord: index) }
      }
    },

    Workload(
      "read-many", "Reads every record, \(page) keys at a time, in random order.",
      startsFrom: .records, leaves: .records, operations: everything
    ) { engine, records in
      var values: [Data] = []
      values.reserveCapacity(records.count)
      for indices in records.shuffled.chunks(of: page) {
        values += try await engine.read(keys: indices.map { records.all[$0].key })
      }
      return { [values] in
        try verify(count: values.count, is: records.count)
        for (value, index) in zip(values, records.shuffled) { try records.verify(value, isRecord: index) }
      }
    },

    Workload(
      "read-all", "Reads all records with their keys in one call.",
      startsFrom: .records, leaves: .records, operations: everything
    ) { engine, records in
      let entries = try await engine.readAllDataAndKeys()
      return { try records.verify(entries) }
    },

    Workload(
      "scan", "Reads all records in the order of keys, \(page) at a time.",
      startsFrom: .records, leaves: .records, operations: everything
    ) { engine, records in
      var entries: [(key: CacheKey, data: Data)] = []
      var range = KeyRange.all
      // An engine that ignores where to go on would never come to an end.
      while entries.count <= records.count {
        let next = try await engine.scan(range, limit: page)
        entries += next
        guard next.count == page else { break }
        range.after = next.last?.key
      }
      return { [entries] in
        try records.verify(entries)
        for (earlier, later) in zip(entries, entries.dropFirst()) where later.key < earlier.key {
          throw WrongAnswer("the scan gave the key \(later.key) after \(earlier.key)")
        }
      }
    },

    Workload(
      "count", "Asks for the number of entries, \(counts) times.",
      startsFrom: .records, leaves: .records, operations: { _ in counts }
    ) { engine, records in
      var answers: [Int] = []
      answers.reserveCapacity(counts)
      for _ in 0..<counts { answers.append(try await engine.keyCount()) }
      return { [answers] in
        for answer in answers { try verify(count: answer, is: records.count) }
      }
    },

    Workload(
      "remove", "Removes entries one after another, a twentieth of the records.",
      startsFrom: .records, leaves: .somethingElse, operations: oneByOne
    ) { engine, records in
      let removed = oneByOne(records.count)
      for (key, _) in records.all.prefix(removed) { try await engine.remove(key: key) }
      return { try await engine.holds(Array(records.all.dropFirst(removed))) }
    },
  ]

  private static let tasks = 64
  private static let batch = 1_000
  private static let page = 100
  private static let counts = 50

  @Sendable private static func everything(_ entries: Int) -> Int { entries }
  @Sendable private static func oneByOne(_ entries: Int) -> Int { max(1, entries / 20) }
  @Sendable private static func concurrent(_ entries: Int) -> Int { min(entries, max(tasks, entries / 10)) }
}

extension RandomAccessCollection where Index == Int {
  /// The elements in pieces of `size`; the last one may be shorter.
  fileprivate func chunks(of size: Int) -> [SubSequence] {
    stride(from: startIndex, to: endIndex, by: size).map { self[$0..<Swift.min($0 + size, endIndex)] }
  }
}
