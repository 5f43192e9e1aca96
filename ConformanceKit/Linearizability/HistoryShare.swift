#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// One process's share of a round of a history: the calls of some of its tasks.
struct HistoryShare: WorkerTask {
  let place: URL
  let round: Int
  let process: Int
  let processCount: Int
  /// The number of calls of all processes together.
  let calls: Int
  let seed: UInt64
  /// The reading of the system's clock at which all processes start.
  let start: Int
  /// The time limit of the calls, in seconds.
  let seconds: Double?
  let hasTransactions: Bool

  /// The workload of the tasks of all processes.
  static func workload(hasTransactions: Bool) -> HistoryWorkload {
    HistoryWorkload(
      methods: (hasTransactions ? [(.transaction, 12)] : []) + [
        (.read, 10), (.exists, 2), (.write, 5), (.remove, 1), (.writeMany, 3), (.apply, 2), (.removeAll, 1),
        (.readMany, 2), (.readAll, 1),
      ], keyCount: 5, tasks: 12, writers: 6)
  }

  /// Makes the calls on the engine that is open in the worker, and sends them.
  func run(
    makeEngine: @Sendable (URL) async throws -> any StorageEngine,
    send: @Sendable ([HistoryCall]) throws -> Void
  ) async throws {
    let workload = Self.workload(hasTransactions: hasTransactions)
    let players = (1...workload.tasks).filter { ($0 - 1) % processCount == process }
    let engine = try OpenEngines.engine(at: place)
    // All tasks start together. Otherwise the first would be done before the last starts.
    while MonotonicClock.nanoseconds < start { await Task.yield() }
    let history = await workload.record(
      round, on: [engine], by: players, calls: calls, seed: seed, MonotonicClock(),
      until: seconds.map { .now + .seconds($0) })
    for start in stride(from: 0, to: history.count, by: 100) {
      try send(Array(history[start..<min(start + 100, history.count)]))
    }
  }
}
