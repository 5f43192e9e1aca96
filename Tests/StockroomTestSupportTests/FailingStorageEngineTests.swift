import ConformanceKit
import Foundation
import StockroomCore
import StockroomMemory
import StockroomTestSupport
import TestFixtures
import Testing

@Suite("FailingStorageEngine")
struct FailingStorageEngineTests {
  private let base = MemoryStorageEngine()
  private let engine: FailingStorageEngine

  init() {
    engine = FailingStorageEngine(base)
  }

  private static let suite = ConformanceSuite(
    "Failing", capabilities: MemoryStorageEngine().capabilities, budget: .quick
  ) { _ in FailingStorageEngine(MemoryStorageEngine()) }

  /// The checks, except in an exhaustive run without those of stores and searches, which the engine below passes.
  private static let checks = suite.checks.filter { check in
    let searches = ["model.", "linearizability.", "life.", "late.", "crowd.", "fairness."]
    return TestRun.isExhaustive
      || !check.rule.isForStores && !searches.contains { check.id.hasPrefix($0) }
  }

  @Test("Without faults it conforms to the contract", arguments: checks.spread)
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test("Every requirement is forwarded as itself and recorded with its keys")
  func passesOn() async throws {
    let outer = FailingStorageEngine(engine)
    try await callEverything(outer)

    #expect(outer.calls.map(\.method) == FailingStorageEngine.Call.Method.allCases)
    #expect(engine.calls == outer.calls)
    #expect(
      outer.calls.map(\.keys.count) == [
        1, 2, 1, 2, 2, 0, 0, 1, 2, 0, 1, 2, 0, 0, 1, 1, 0, 2, 1, 2, 0, 0, 0, 0, 0,
      ])
    #expect(outer.calls.map(\.byteCount).filter { $0 > 0 } == [1, 5, 5, 4])
    #expect(outer.calls.filter(\.isWrite).count == 8)
    #expect(outer.calls.filter(\.isRead).count == 15)
    #expect(outer.calls[1].description == "write(_:) of 2")
    #expect(outer.calls[12].description == "keyCount()")
    #expect(outer.callCount == 25)
    #expect(outer.bytesWritten == 15)
    #expect(outer.capabilities == base.capabilities)

    outer.resetCalls()
    #expect(outer.calls.isEmpty)
    #expect(outer.bytesWritten == 0)
    #expect(engine.callCount == 25)
  }

  @Test("Every kind of call can fail before its work")
  func failsEverything() async throws {
    for method in FailingStorageEngine.Call.Method.allCases {
      let outer = FailingStorageEngine(engine)
      outer.failEveryCall { $0.method == method }
      await #expect(throws: StorageError.self) { try await callEverything(outer, goOnAfterErrors: true) }
      #expect(!engine.calls.contains { $0.method == method })
      engine.resetCalls()
    }
  }

  @Test("Only the call with the given number fails")
  func failsOneCall() async throws {
    engine.failCall(3, with: StorageError(.diskFull, "Full."))
    try await engine.write(a, key: k1)
    try await engine.write(a, key: k2)
    let error = await #expect(throws: StorageError.self) { try await engine.write(a, key: k3) }
    #expect(error?.code == .diskFull)
    try await engine.write(b, key: k1)

    #expect(try await base.allKeys().count == 2)
    #expect(engine.callCount == 4)
    #expect(engine.bytesWritten == 4)
  }

  @Test("A number below one means the next call", arguments: [Int.min, -1, 0, 1])
  func strangeNumbers(_ number: Int) async throws {
    engine.failCall(number)
    await #expect(throws: StorageError.self) { try await engine.keyCount() }
    #expect(try await engine.keyCount() == 0)
  }

  @Test("Only calls that match are counted")
  func countsMatching() async throws {
    engine.failCall(2, where: \.isWrite)
    try await engine.write(a, key: k1)
    for _ in 0..<5 { #expect(try await engine.read(key: k1) == a) }
    await #expect(throws: StorageError.self) { try await engine.remove(key: k1) }
    #expect(try await engine.read(key: k1) == a)
  }

  @Test("Calls fail with the given error until the faults are cleared")
  func failsUntilCleared() async throws {
    struct ForeignError: Error {}
    engine.failEveryCall(with: ForeignError())
    engine.failCall(100)
    for _ in 0..<3 { await #expect(throws: ForeignError.self) { try await engine.write(a, key: k1) } }
    engine.clearFaults()
    for _ in 0..<200 { try await engine.write(a, key: k1) }
  }

  @Test("A fault afterwards leaves the work done")
  func failsAfterwards() async throws {
    engine.failCall(with: StorageError(.io, "Lost."), .afterwards)
    await #expect(throws: StorageError.self) { try await engine.write(b, key: k1) }
    #expect(try await base.read(key: k1) == b)
    #expect(engine.bytesWritten == 2)
  }

  @Test("An error of the engine wins over a fault afterwards")
  func engineFailsItself() async throws {
    engine.failCall(with: CancellationError(), .afterwards)
    let error = await #expect(throws: StorageError.self) {
      try await engine.write(a, key: CacheKey(verbatim: ""))
    }
    #expect(error?.code == .invalidKey)
    #expect(engine.bytesWritten == 0)
  }

  @Test("Of two faults of one call the first is thrown, and both are spent")
  func faultsMeet() async throws {
    engine.failCall(2, with: StorageError(.locked, "First."))
    engine.failCall(2, with: StorageError(.closed, "Second."))
    _ = try await engine.keyCount()
    let error = await #expect(throws: StorageError.self) { try await engine.keyCount() }
    #expect(error?.code == .locked)
    _ = try await engine.keyCount()
  }

  @Test("A condition may call the engine")
  func conditionAsks() async throws {
    engine.failCall { [engine] _ in engine.callCount >= 1 }
    _ = try await engine.keyCount()
    await #expect(throws: StorageError.self) { try await engine.keyCount() }
  }

  @Test("Of many concurrent calls exactly as many fail as there are faults")
  func concurrentFailures() async throws {
    for number in 1...20 { engine.failCall(number * 10) }
    let failures = await withTaskGroup(of: Bool.self) { group in
      for number in 0..<400 {
        group.addTask { [engine] in
          do {
            try await engine.write(a, key: CacheKey(verbatim: "\(number)"))
            return false
          } catch {
            return true
          }
        }
      }
      return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
    }
    #expect(failures == 20)
    #expect(try await base.keyCount() == 380)
    #expect(engine.callCount == 400)
    #expect(engine.bytesWritten == 380)
  }

  @Test("Calls are held until they are released", .timeLimit(.minutes(60)))
  func holds() async throws {
    engine.hold(where: \.isWrite)
    async let first: Void = engine.write(a, key: k1)
    async let second: Void = engine.write(a, key: k2)
    try await engine.waitForHeldCalls(2)
    try await engine.waitForHeldCalls(-1)
    #expect(try await engine.keyCount() == 0)
    #expect(engine.calls.filter(\.isWrite).count == 2)

    engine.release()
    _ = try await (first, second)
    #expect(try await engine.keyCount() == 2)
    try await engine.write(a, key: k3)
    engine.release()
  }

  @Test("Whether a call fails is decided when it arrives, held or not", .timeLimit(.minutes(60)))
  func holdsFailures() async throws {
    engine.hold()
    engine.failCall()
    let failing = Task { try await engine.write(a, key: k1) }
    try await engine.waitForHeldCalls()
    engine.clearFaults()
    engine.release()
    await #expect(throws: StorageError.self) { try await failing.value }
    #expect(try await base.keyCount() == 0)
  }

  @Test("A held call ends when it is cancelled, and so does waiting for one", .timeLimit(.minutes(60)))
  func cancellation() async throws {
    engine.hold()
    let writing = Task { try await engine.write(a, key: k1) }
    try await engine.waitForHeldCalls()
    let waiting = Task { try await engine.waitForHeldCalls(2) }
    writing.cancel()
    waiting.cancel()
    await #expect(throws: CancellationError.self) { try await writing.value }
    await #expect(throws: CancellationError.self) { try await waiting.value }
    engine.release()
    #expect(try await engine.keyCount() == 0)
  }

  @Test("Many calls are held and released at once, again and again", .timeLimit(.minutes(60)))
  func holdsMany() async throws {
    for round in 1...5 {
      engine.hold()
      try await withThrowingTaskGroup(of: Void.self) { group in
        for number in 0..<50 {
          group.addTask { [engine] in try await engine.write(a, key: CacheKey(verbatim: "\(number)")) }
        }
        try await engine.waitForHeldCalls(50)
        engine.release()
        try await group.waitForAll()
      }
      #expect(engine.bytesWritten == 50 * round)
    }
  }
}

private let k1 = CacheKey(verbatim: "1")
private let k2 = CacheKey(verbatim: "2")
private let k3 = CacheKey(verbatim: "3")
private let a = Data("a".utf8)
private let b = Data("bb".utf8)
