#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

extension Workload {
  /// Transactions that read an entry and write another value to it, a twentieth of the records by one task, a fifth by more.
  static func transactions(_ tasks: Int) -> Workload {
    let who = tasks == 1 ? "One after another" : "By \(tasks) tasks at a time"
    return Workload(
      tasks == 1 ? "transaction" : "transaction-\(tasks)",
      "\(who), transactions that read an entry and write another value to it. One operation is one transaction.",
      leaves: .somethingElse, needs: .transactions
    ) { run in
      let values = run.records.newValues()
      let wanted = tasks == 1 ? oneByOne(run.records.count) : max(tasks, run.records.count / 5)
      let changed = Array(run.records.shuffled.prefix(wanted))
      try await run.measure(operations: changed.count) { _ in
        let (engine, records) = (run.engine, run.records)
        try await withThrowingTaskGroup { group in
          for task in 0..<tasks {
            group.addTask {
              var latencies = run.latencyRecorder()
              for place in stride(from: task, to: changed.count, by: tasks) {
                let (key, data) = values[changed[place]]
                let before = try await engine.withTransaction { transaction in
                  let before = try transaction.read(key: key)
                  try transaction.write(data, key: key)
                  return before
                }
                try records.verify(before, isRecord: changed[place])
                latencies.record()
              }
              run.add(latencies)
            }
          }
          try await group.waitForAll()
        }
      }
      var expected = run.records.all
      for index in changed { expected[index] = values[index] }
      try await run.engine.verifyContents(expected)
    }
  }
}
