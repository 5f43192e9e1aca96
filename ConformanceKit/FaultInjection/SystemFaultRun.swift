import Foundation
import StockroomCore

/// Performs a series of steps on a small store while one system call fails, and reports how the engine
/// handled it.
struct SystemFaultRun: WorkerTask {
  enum Scenario: Codable, Sendable {
    /// One call after the other.
    case steps(Int)
    /// Concurrent changes by several tasks, in a place that was opened before anything fails.
    case concurrent
  }

  enum Message: Codable, Sendable {
    /// The next step, as a clause after "during".
    case step(String)
    /// How many calls of each kind were made, the number of the first of each after reopening, and the file of the
    /// failed call.
    case end(counts: [String: Int], whenReopened: [String: Int], failedFile: String?)
    case broken(Violation)
  }

  /// A directory with a unique name.
  let place: URL
  let scenario: Scenario
  /// Nil to count the calls.
  let fault: SystemFault?
  let isAtomic: Bool
  let hasTransactions: Bool
  /// Whether pages whose sync failed are lost when the engine is closed.
  let losesUnsynced: Bool

  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable (Message) throws -> Void
  ) async throws {
    let interceptor = try SystemCallInterceptor.shared()
    defer { interceptor.end() }
    var trial: any FaultTrial =
      switch scenario {
      case .steps(let count):
        SystemFaultTrial(self, count, interceptor, makeEngine) { try send(.step($0)) }
      case .concurrent: ConcurrentFaultTrial(self, interceptor, makeEngine) { try send(.step($0)) }
      }
    do {
      try await trial.run()
    } catch let violation as Violation {
      try send(.broken(violation))
    } catch let failure as CallFailure {
      try send(.broken(Violation("\(trial.stage), \(failure)")))
    }
    func named(_ numbers: [SystemCall: Int]) -> [String: Int] {
      Dictionary(uniqueKeysWithValues: numbers.map { ($0.key.rawValue, $0.value) })
    }
    try send(
      .end(
        counts: named(trial.counts), whenReopened: named(trial.whenReopened),
        failedFile: interceptor.observation.failedFile))
  }
}

/// The trial with one call after the other.
private struct SystemFaultTrial: FaultTrial {
  private let task: SystemFaultRun
  private let length: Int
  private let interceptor: SystemCallInterceptor
  private let note: (String) throws -> Void
  private var store: FaultedStore
  private(set) var whenReopened: [SystemCall: Int] = [:]
  var stage: String { store.stage }
  var counts: [SystemCall: Int] { interceptor.observation.counts }

  init(
    _ task: SystemFaultRun, _ length: Int, _ interceptor: SystemCallInterceptor,
    _ makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping (String) throws -> Void
  ) {
    (self.task, self.length, self.interceptor, self.note) = (task, length, interceptor, note)
    store = FaultedStore(
      at: task.place, isAtomic: task.isAtomic, losesUnsynced: task.losesUnsynced, interceptor, makeEngine)
  }

  private mutating func enter(_ stage: String) throws {
    store.stage = stage
    try note(stage)
  }

  mutating func run() async throws {
    store.arm(task.fault)
    try enter("opening a new place")
    try await store.open()
    for number in 0..<length {
      let step = SystemFaultStep(number, hasTransactions: task.hasTransactions)
      try enter("\(step)")
      let hadFailed = store.hasFailed
      switch step {
      case .change(let method, let operations): try await store.change(method, operations)
      case .look(let look): try await store.look(look)
      case .reopen:
        try await store.close()
        let before = interceptor.observation.counts
        try await store.open()
        if !whenReopened.isEmpty { break }
        for (call, count) in interceptor.observation.counts where count > before[call] ?? 0 {
          whenReopened[call] = 1 + (before[call] ?? 0)
        }
      }
      // All reads must agree on the outcome of the failed call.
      if !hadFailed, store.hasFailed { try await store.readEverything() }
    }
    try await store.close()
    store.disarm()
    try enter("opening it with nothing failing any more")
    try await store.open()
    try await store.readEverything()
    try enter("writing with nothing failing any more")
    try await store.change(.write, [.write(data("afterwards"), key: key("afterwards"))])
    try await store.close()
    try await expectNothingOpen(in: task.place)
    try await store.open()
    try await store.readEverything()
    try await store.close()
  }
}
