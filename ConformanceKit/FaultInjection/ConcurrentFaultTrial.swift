#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Runs transactions and batches in several concurrent tasks while one system call fails. A failed change
/// must not affect those of other tasks, even if they are committed together with it.
///
/// Each transaction increments two counters and writes a receipt. A change that was made twice or in part does not
/// match its receipt.
struct ConcurrentFaultTrial: FaultTrial {
  private let task: SystemFaultRun
  private let interceptor: SystemCallInterceptor
  private let makeEngine: @Sendable (URL) async throws -> any StorageEngine
  private let note: (String) throws -> Void
  private(set) var stage = ""
  private(set) var counts: [SystemCall: Int] = [:]
  let whenReopened: [SystemCall: Int] = [:]

  private static let counters = keys(48, prefix: "counter-")
  /// The number of tasks, and of changes in each. Every third task writes batches instead of transactions.
  private static let taskCount = 6, roundCount = 6

  init(
    _ task: SystemFaultRun, _ interceptor: SystemCallInterceptor,
    _ makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping (String) throws -> Void
  ) {
    (self.task, self.interceptor, self.makeEngine, self.note) = (task, interceptor, makeEngine, note)
  }

  /// The outcomes of the changes, by receipt.
  private struct Results {
    var acknowledged: Set<CacheKey> = []
    var refused: Set<CacheKey> = []
    var violation: Violation?

    mutating func formUnion(_ other: Results) {
      acknowledged.formUnion(other.acknowledged)
      refused.formUnion(other.refused)
      violation = violation ?? other.violation
    }
  }

  mutating func run() async throws {
    try enter("filling a place")
    var engine = try await task.open(task.place, makeEngine)
    try await engine.write(Self.counters.map { ($0, Self.value(0)) })
    try await engine.close()
    engine.release()
    try enter("changes of \(Self.taskCount) tasks at a time")
    // A reopened engine has nothing in memory, so it has to read while it writes.
    engine = try await task.open(task.place, makeEngine)
    interceptor.begin(at: task.place, fault: task.fault, losesUnsynced: task.losesUnsynced)
    let results = await change(engine)
    counts = interceptor.observation.counts
    let hasFailed = interceptor.observation.failedFile != nil
    interceptor.endFault()
    if let violation = results.violation { throw violation }
    if !hasFailed, let receipt = results.refused.first {
      throw Violation("the change of \(receipt) threw although no system call had failed")
    }
    try enter("reading what \(Self.taskCount) tasks have changed")
    let isDecided = try await look(engine, results)
    do {
      try await engine.close()
    } catch let failure as CallFailure {
      // The engine may report the failure again.
      if let violation = mistake(in: failure, of: "close()") { throw violation }
    }
    engine.release()
    try enter("opening what \(Self.taskCount) tasks have changed")
    engine = try await task.open(task.place, makeEngine)
    try Self.check(try await engine.readAllEntries(), results, mayHaveRefused: !isDecided)
    try await engine.close()
    engine.release()
  }

  private mutating func enter(_ stage: String) throws {
    self.stage = stage
    try note(stage)
  }

  // MARK: Changes

  private func change(_ engine: EngineUnderTest) async -> Results {
    await withTaskGroup { group in
      for number in 0..<Self.taskCount {
        group.addTask {
          var results = Results()
          for round in 0..<Self.roundCount {
            let receipt = Self.receipt(number, round)
            do {
              try await Self.change(number, round, receipt, engine)
              results.acknowledged.insert(receipt)
            } catch {
              results.refused.insert(receipt)
              results.violation = results.violation ?? mistake(in: error, of: "a change")
            }
          }
          return results
        }
      }
      return await group.reduce(into: Results()) { $0.formUnion($1) }
    }
  }

  private static func change(
    _ number: Int, _ round: Int, _ receipt: CacheKey, _ engine: EngineUnderTest
  ) async throws {
    let (first, second) = pair(number, round)
    guard isTransaction(number) else {
      return try await engine.apply([
        .write(value(round), key: own(number)), .write(data("batch"), key: receipt),
      ])
    }
    try await engine.withTransaction { transaction in
      for counter in [first, second] {
        guard let found = try transaction.read(key: counter) else {
          throw Violation("a body read nil for \(counter), which exists", rule: .r4)
        }
        try transaction.write(value(try count(in: found, counter) + 1), key: counter)
      }
      try transaction.write(data("transaction"), key: receipt)
    }
  }

  private static func isTransaction(_ number: Int) -> Bool { number % 3 != 2 }

  private static func receipt(_ number: Int, _ round: Int) -> CacheKey { key("receipt-\(number)-\(round)") }

  /// The key that only this task writes.
  private static func own(_ number: Int) -> CacheKey { key("own-\(number)") }

  /// Two counters, each shared with one neighbor of the task.
  private static func pair(_ number: Int, _ round: Int) -> (CacheKey, CacheKey) {
    let first = (number * 7 + round * 11) % counters.count
    return (counters[first], counters[(first + 7) % counters.count])
  }

  /// So large that few values fit into one page of a file.
  private static func value(_ count: Int) -> Data { data("\(count) ") + noise(1_200, seed: UInt64(count)) }

  private static func count(in value: Data, _ key: CacheKey) throws -> Int {
    guard let end = value.firstIndex(of: UInt8(ascii: " ")),
      let count = Int(String(decoding: value[..<end], as: UTF8.self)), value == Self.value(count)
    else { throw Violation("\(key) had \(describe(value)), which was never written", rule: .w1) }
    return count
  }

  // MARK: Reading

  /// Checks the contents after the fault. An engine may also throw until it is reopened.
  ///
  /// - Returns: Whether the outcomes of the changes that threw are settled, because a later write has been
  ///   acknowledged.
  private func look(_ engine: EngineUnderTest, _ results: Results) async throws -> Bool {
    do {
      try Self.check(try await engine.readAllEntries(), results, mayHaveRefused: false)
      try await engine.write(data("afterwards"), key: key("afterwards"))
      return true
    } catch let failure as CallFailure {
      if let violation = mistake(in: failure, of: failure.call) { throw violation }
      return false
    }
  }

  private static func check(
    _ entries: [StorageEntry], _ results: Results, mayHaveRefused: Bool
  ) throws {
    let found = Dictionary(entries.map { ($0.key, $0.data) }) { first, _ in first }
    if let lost = results.acknowledged.first(where: { found[$0] == nil }) {
      throw Violation("an acknowledged change was missing: its \(lost)", rule: .w6)
    }
    if !mayHaveRefused, let refused = results.refused.first(where: { found[$0] != nil }) {
      throw Violation("a change that had thrown was there: its \(refused)", rule: .f4)
    }
    var expected = Dictionary(uniqueKeysWithValues: counters.map { ($0, 0) })
    for number in 0..<taskCount {
      let rounds = (0..<roundCount).filter { found[receipt(number, $0)] != nil }
      if isTransaction(number) {
        for round in rounds {
          let (first, second) = pair(number, round)
          expected[first, default: 0] += 1
          expected[second, default: 0] += 1
        }
      } else if found[own(number)] != rounds.last.map(value) {
        throw Violation("a batch of two entries was there with only one of them", rule: .w4)
      }
    }
    for (counter, count) in expected.sorted(by: { $0.key < $1.key }) {
      guard let value = found[counter] else { throw Violation("\(counter) was missing", rule: .w6) }
      let actual = try Self.count(in: value, counter)
      if actual != count {
        throw Violation(
          "\(counter) was \(actual), but the receipts of the transactions add up to \(count)",
          rule: .t1)
      }
    }
  }
}
