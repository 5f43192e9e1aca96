#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

extension Workload {
  /// Transactions that read an entry and write another value to it: a twentieth of the records with one task, a fifth
  /// with several.
  static func transactions(_ tasks: Int) -> Workload {
    let who = tasks == 1 ? "One after another" : "By \(tasks) concurrent tasks"
    return Workload(
      tasks == 1 ? "transaction" : "transaction-\(tasks)",
      "\(who), transactions that read an entry and write another value to it. One operation is one transaction.",
      leaves: .somethingElse, needs: .transactions
    ) { run in
      let values = run.records.newValues()
      let wanted = tasks == 1 ? oneByOne(run.records.count) : max(tasks, run.records.count / 5)
      let changed = Array(run.records.shuffled.prefix(wanted))
      let records = run.records
      try await run.measure(changed, by: tasks) { engine, index in
        let (key, data) = values[index]
        while true {
          do {
            return try await engine.withTransaction { transaction in
              let before = try transaction.read(key: key)
              try transaction.write(data, key: key)
              return before
            }
          } catch let error as StorageError where error.code == .conflict {
            // Rule T4 allows `conflict`. Retries are part of the time of the transaction.
            try Task.checkCancellation()
          }
        }
      } verify: { before, index in
        try records.verify(before, isRecord: index)
      }
      var expected = run.records.all
      for index in changed { expected[index] = values[index] }
      try await run.engine.verifyContents(expected)
    }
  }
}
