import Foundation
import StockroomCore
import StockroomKitSupport

/// Makes one system call fail in the change that makes by far the most system calls in a series of overwrites: there
/// the engine compacts its log, or moves its contents to another file.
struct FailingCompactions: CheckTask {
  let place: URL
  /// Whether batches are atomic.
  let isAtomic: Bool
  let seed: UInt64
  /// The maximum number of faults. Nil for all.
  let limit: Int?

  /// A change of the series, and how many calls have been made before it and after it.
  private struct Compaction {
    let change: Int
    let before: [SystemCall: Int]
    let after: [SystemCall: Int]
  }

  private typealias MakeEngine = @Sendable (URL) async throws -> any StorageEngine
  private typealias Note = @Sendable (String) throws -> Void

  /// The maximum number of changes in the series.
  private static let length = 160
  /// How long the series may take, and all trials together.
  private static let time = (series: Duration.seconds(3), trials: Duration.seconds(6))

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    let interceptor = try SystemCallInterceptor.shared()
    defer { interceptor.end() }
    let start = ContinuousClock.now
    // Without a compaction there is nothing to check.
    guard let compaction = try await findCompaction(interceptor, makeEngine, note) else { return }
    let duration = start.duration(to: .now)
    let affordable = max(2, Int(Self.time.trials / max(duration, .milliseconds(1))))
    let faults = trials(of: compaction, limit: limit.map { min($0, affordable) })
    for (number, fault) in faults.enumerated() {
      let when = "after \(fault) in one of many overwrites"
      try note("the steps \(when)")
      do {
        try await perform(number + 1, fault, compaction, interceptor, makeEngine, note)
      } catch let violation as Violation {
        throw Violation("\(when), \(violation.description)", rule: violation.rule)
      }
    }
  }

  // MARK: Series

  /// A change of the series, which overwrites the same twelve entries each time.
  private static func operations(of number: Int) -> [StorageOperation] {
    keys(12, prefix: "overwritten-").enumerated().map { index, key in
      .write(noise(3_000, seed: UInt64(number * 100 + index)), key: key)
    }
  }

  private static let still = entries(keys(6, prefix: "still-")).map {
    StorageOperation.write($0.data, key: $0.key)
  }

  private func directory(_ number: Int) -> URL {
    place.appending(path: "compaction-\(1_000 + number)", directoryHint: .isDirectory)
  }

  /// Opens a new place with the entries that the series overwrites, and others.
  private func begin(
    _ number: Int, _ fault: SystemFault?, _ interceptor: SystemCallInterceptor,
    _ makeEngine: @escaping MakeEngine
  ) async throws -> FaultedStore {
    var store = FaultedStore(at: directory(number), isAtomic: isAtomic, interceptor, makeEngine)
    store.stage = "before anything has failed"
    store.arm(nil)
    try await store.open()
    try await store.change(.writeMany, Self.still + Self.operations(of: 0))
    try await store.noteTimes()
    store.arm(fault)
    return store
  }

  /// Reopens the place, and removes it.
  private func end(_ number: Int, _ store: inout FaultedStore) async throws {
    try await store.close()
    try await expectNothingOpen(in: directory(number))
    try await store.open()
    try await store.readEverything()
    try await store.expectTimes(exceptOf: [])
    try await store.close()
    // What is left is removed with the directory of the check.
    try? FileManager.default.removeItem(at: directory(number))
  }

  /// The change of the series that makes more than twice as many calls as most others. Nil if there is none.
  private func findCompaction(
    _ interceptor: SystemCallInterceptor, _ makeEngine: @escaping MakeEngine, _ note: Note
  ) async throws -> Compaction? {
    try note("a series of overwrites with nothing failing")
    var store = try await begin(0, nil, interceptor, makeEngine)
    var counts = [interceptor.observation.counts]
    let start = ContinuousClock.now
    for change in 1...Self.length {
      if change.isMultiple(of: 20) { try note("\(change) overwrites with nothing failing") }
      try await store.change(.writeMany, Self.operations(of: change))
      counts.append(interceptor.observation.counts)
      // A slow engine makes fewer changes.
      if limit != nil, start.duration(to: .now) > Self.time.series { break }
    }
    try await end(0, &store)
    let totals = zip(counts, counts.dropFirst()).map { before, after in
      after.values.reduce(0, +) - before.values.reduce(0, +)
    }
    let usual = totals.sorted()[totals.count / 2]
    // The first changes may create files.
    let busiest = totals.indices.dropFirst(3).max { totals[$0] < totals[$1] }
    guard let busiest, totals[busiest] > 2 * usual + 4 else { return nil }
    return Compaction(change: busiest + 1, before: counts[busiest], after: counts[busiest + 1])
  }

  /// Faults of the calls that a compaction makes, beginning with one of each kind of call. Interrupted calls are left
  /// out, since those of single changes are interrupted by other checks.
  private func trials(of compaction: Compaction, limit: Int?) -> [SystemFault] {
    var random = SeededRandom(seed: seed)
    let groups = compaction.after.sorted { $0.key.rawValue < $1.key.rawValue }.map { call, count in
      ((compaction.before[call] ?? 0)..<count).flatMap { number -> [SystemFault] in
        let failures = call.failures.filter { ![.interrupted, .again].contains($0) }
        return failures.map { failure in
          let fault = SystemFault(call: call, number: number + 1, failure: failure)
          return failure == .short && call.isWrite ? fault.persisting : fault
        }
      }
    }
    return roundRobin(groups.map { $0.shuffled(using: &random) }.shuffled(using: &random), limit: limit)
  }

  /// Repeats the series up to the compaction, or a little further, while the call fails.
  private func perform(
    _ number: Int, _ fault: SystemFault, _ compaction: Compaction, _ interceptor: SystemCallInterceptor,
    _ makeEngine: @escaping MakeEngine, _ note: Note
  ) async throws {
    var store = try await begin(number, fault, interceptor, makeEngine)
    store.stage = "with one call failing"
    for change in 1...(compaction.change + 4) where !store.hasFailed {
      if change.isMultiple(of: 20) { try note("\(change) overwrites until \(fault)") }
      try await store.change(.writeMany, Self.operations(of: change))
    }
    store.disarm()
    store.stage = "with nothing failing any more"
    try await store.readEverything()
    try await store.expectTimes(exceptOf: [])
    try await store.change(.write, [.write(data("afterwards"), key: key("afterwards"))])
    try await end(number, &store)
  }
}
