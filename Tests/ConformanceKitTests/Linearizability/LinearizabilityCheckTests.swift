import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

@Suite("Recorded histories")
struct LinearizabilityCheckTests {
  private func outcomes(
    _ capabilities: EngineCapabilities, seed: UInt64 = 1,
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine
  ) async -> [(check: String, outcome: ConformanceOutcome)] {
    var outcomes: [(check: String, outcome: ConformanceOutcome)] = []
    for check in Self.checks(capabilities, seed: seed, makeEngine: makeEngine) {
      outcomes.append((check.id, await check.outcome()))
    }
    return outcomes
  }

  private static func checks(
    _ capabilities: EngineCapabilities, seed: UInt64 = 1,
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine
  ) -> [ConformanceCheck] {
    var budget = ConformanceBudget()
    budget.seed = seed
    return ConformanceSuite("", capabilities: capabilities, budget: budget, makeEngine: makeEngine).checks
      .filter { $0.id.hasPrefix("linearizability.") }
  }

  @Test("Every check of recorded histories has an engine that fails it")
  func everyCheckFails() {
    let checks = Self.checks(ReferenceEngine.promises.union(.transactions)) { _ in try ReferenceEngine() }
    #expect(Set(RacyEngine.all.map(\.check)) == Set(checks.map(\.id)))
  }

  @Test("An engine that cancels calls by itself, even if rarely, breaks rule C4")
  func cancelsByItself() async {
    let outcomes = await outcomes(ReferenceEngine.promises) {
      CancelsNowAndThen(base: try ReferenceEngine(directory: $0))
    }
    let failures = outcomes.compactMap(\.outcome.failure)
    #expect(!failures.isEmpty)
    #expect(
      failures.allSatisfy { $0.rule == .c4 && $0.actual.contains("although its task had not been cancelled") }
    )
  }

  @Test("Each racy engine has a history that shows a broken rule", arguments: RacyEngine.all.spread)
  func failsForItsRule(_ engine: RacyEngine) async throws {
    let engineCase = engine.engineCase
    // Tasks overlap by chance, so another seed may find what the first ones have not: the expected rule, if the machine
    // runs the calls concurrently.
    var outcomes: [ConformanceOutcome] = []
    for seed in 1...40 as ClosedRange<UInt64> {
      let check = try #require(
        Self.checks(engineCase.capabilities, seed: seed, makeEngine: engineCase.makeEngine)
          .first { $0.id == engine.check })
      let outcome = await check.outcome()
      outcomes.append(outcome)
      guard let failure = outcome.failure else { continue }
      #expect(failure.rule == engineCase.rule || engineCase.also.contains(failure.rule), "\(failure)")
      #expect(failure.evidence.map { $0.contains("task ") && $0.contains("|-") } ?? false, "\(failure)")
      // Three other rules are enough; more attempts would not find more.
      let failureCount = outcomes.count { $0.failure != nil }
      if failure.rule == engineCase.rule || failureCount == 3 && !TestRun.isExhaustive { return }
    }
    #expect(outcomes.contains { $0.failure != nil }, "No history shows it: \(outcomes)")
  }

  @Test(
    "Correct engines pass with any capabilities",
    arguments: 1...(TestRun.isExhaustive ? 4 : 1) as ClosedRange<UInt64>)
  func correctEnginesPass(seed: UInt64) async {
    let claims: EngineCapabilities = [.atomicBatches, .snapshotReads, .transactions]
    let engines: [(claims: EngineCapabilities, make: @Sendable (URL) async throws -> any StorageEngine)] = [
      ([], { _ in LockedEngine() }), ([], { _ in ActorEngine() }),
      ([], { _ in WaitsAWhile(base: try ReferenceEngine()) }),
      (claims, { _ in WaitsAWhile(base: try ReferenceEngine()) }), (claims, { _ in try ReferenceEngine() }),
    ]
    for engine in engines {
      for (check, outcome) in await outcomes(engine.claims, seed: seed, makeEngine: engine.make) {
        #expect(outcome == .passed, "\(check)")
      }
    }
  }

  @Test("An engine that often throws fails, one that rarely throws passes")
  func failures() async {
    let always = await outcomes([]) { _ in try ThrowsOften(base: ReferenceEngine(), every: 3) }
    #expect(always.contains { $0.outcome.failure?.actual.contains("threw without a reason") ?? false })
    let rarely = await outcomes([]) { _ in try ThrowsOften(base: ReferenceEngine(), every: 400) }
    #expect(rarely.allSatisfy { $0.outcome == .passed }, "\(rarely)")
  }

  @Test("Calls to an engine that suspends overlap, and all are recorded")
  func overlap() async throws {
    for (engine, least) in [
      (try ReferenceEngine() as any StorageEngine, 0), (LockedEngine(), 0),
      (WaitsAWhile(base: try ReferenceEngine()), 0.5),
    ] {
      let workload = HistoryWorkload(methods: [(.read, 3), (.write, 3), (.remove, 1)])
      let history = await workload.round(0, on: [EngineUnderTest(engine)], calls: 2_000, seed: 1)
      let calls = history.sorted { $0.begin < $1.begin }
      let share = Double(zip(calls, calls.dropFirst()).count { $0.overlaps($1) }) / Double(calls.count)
      #expect(history.count == 16 * 125 + 6)
      #expect(share >= least, "\(type(of: engine)): \(share)")
    }
  }

  @Test("The same seed makes the same choices, and values are written once")
  func choices() async throws {
    let workload = HistoryWorkload(methods: [(.read, 2), (.write, 2), (.writeMany, 1), (.apply, 1)])
    func changes(_ round: Int, seed: UInt64) async throws -> [Int: [[HistoryCall.Change]]] {
      let history = await workload.round(
        round, on: [EngineUnderTest(try ReferenceEngine())], calls: 800, seed: seed)
      return Dictionary(grouping: history.sorted { $0.begin < $1.begin }, by: \.task).mapValues {
        $0.map(\.changes)
      }
    }
    let first = try await changes(0, seed: 7)
    #expect(try await changes(0, seed: 7) == first)
    #expect(try await changes(0, seed: 8) != first)
    let values = try await (Array(first.values) + changes(1, seed: 7).values).joined().joined().compactMap {
      change in
      if case .write(_, let value) = change { value } else { nil }
    }
    #expect(Set(values).count == values.count)
  }

  @Test("Values and keys are read back as numbers, and unknown values are detected")
  func values() {
    let entries = HistoryEntries(count: 6)
    for cell in [
      Cell(key: 2, value: 1), Cell(key: 3, value: 4), Cell(key: 0, value: 55), Cell(key: 5, value: 110),
    ] {
      let data = entries.data(of: cell)
      #expect(entries.cell(of: data, key: cell.key) == cell)
      #expect(entries.cell(of: data) == (cell.value < 4 ? nil : cell))
      #expect(entries.cell(of: data.dropLast(), key: cell.key) == nil)
      #expect(entries.cell(of: data + [46], key: cell.key) == nil)
      if cell.value >= 4 { #expect(entries.cell(of: data, key: cell.key + 1) == nil) }
    }
    #expect(entries.cell(of: Data(), key: 1) == nil)
    #expect(
      entries.answer([(entries.keys[0], entries.data(of: Cell(key: 0, value: 4)))], of: [1]) == .nonsense)
    #expect(entries.answer(keys: [CacheKey(verbatim: "zz")], of: [0, 1]) == .nonsense)
  }
}

/// A correct engine whose single reads and writes and whose batches yield before and after their effect.
private struct WaitsAWhile: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    await Task.yield()
    try await base.write(data, key: key)
    // Acknowledges a change a little after it is visible.
    await Task.yield()
  }
  func read(key: CacheKey) async throws -> Data? {
    await Task.yield()
    let data = try await base.read(key: key)
    await Task.yield()
    return data
  }
  func apply(_ operations: [StorageOperation]) async throws {
    await Task.yield()
    try await base.apply(operations)
    await Task.yield()
  }
}

/// An engine in which one of this many writes throws, half of these after they have been done.
private final class ThrowsOften: FaultyEngine {
  let base: ReferenceEngine
  private let interval: Int
  private let count = MutexProtected(0)
  init(base: ReferenceEngine, every interval: Int) { (self.base, self.interval) = (base, interval) }

  func write(_ data: Data, key: CacheKey) async throws {
    let number = count.withLock { count in
      count += 1
      return count
    }
    if number % (2 * interval) == interval { throw StorageError(.io, "The network is gone.") }
    try await base.write(data, key: key)
    if number % (2 * interval) == 0 { throw StorageError(.io, "The network was gone.") }
  }
}
