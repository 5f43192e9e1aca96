import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTestSupport
import Testing

@Suite("Expiring values that other engines renew concurrently")
struct ExpiringRaceTests {
  private let base = MemoryStorageEngine()
  private let clock = HandSetClock()
  private let keys = ["k", "l", "m"].map { CacheKey(verbatim: $0) }
  private let value = Data("value".utf8)

  @Test(
    "A waiting batch creates a new entry if another engine has shortened the old one's lifetime and it has expired",
    arguments: ["write", "apply", "writeEntries"])
  func renewedForShorter(_ call: String) async throws {
    let failing = FailingStorageEngine(base)
    let engine = failing.expiring(after: .seconds(60), clock: clock.clock)
    let others = base.expiring(clock: clock.clock)
    let (old, new, value) = (keys[0], keys[2], value)
    let entries = [old, new].map {
      StorageEntry(key: $0, data: value, createdAt: clock.now, updatedAt: clock.now)
    }
    let batch: @Sendable () async throws -> Void = {
      switch call {
      case "write": try await engine.write([(old, value), (new, value)])
      case "apply": try await engine.apply([.write(value, key: old), .write(value, key: new)])
      default: try await engine.writeEntries(entries)
      }
    }
    try await engine.write(value, key: old)
    try await others.write(value, key: keys[1])
    failing.hold { $0.isWrite }
    async let writing: Void = batch()
    try await failing.waitForHeldCalls()
    try await others.write(value, key: old, expiresAfter: .seconds(10))
    clock.advance(10)
    failing.release()
    try await writing
    #expect(try await engine.readAllEntries().map(\.key) == [keys[1], old, new])
  }

  @Test(
    "Without transactions a failed write of entries removes nothing that another engine has renewed",
    arguments: [EngineCapabilities.transactions, [.transactions, .preservesTimestamps]])
  func renewedBeforeFailure(missing: EngineCapabilities) async throws {
    let (key, value) = (keys[0], value)
    let others = base.expiring(clock: clock.clock)
    try await others.write(value, key: key, expiresAfter: .seconds(10))
    clock.advance(10)
    let failing = FailingStorageEngine(base)
    for method in [FailingStorageEngine.Call.Method.writeEntries, .apply] {
      failing.failEveryCall(with: StorageError(.diskFull, "Full")) { $0.method == method }
    }
    let late = AnswersLate(base: failing) { try await others.write(value, key: key) }
    let engine = WithoutCapabilities(base: late, capabilities: missing).expiring(
      after: .seconds(60), clock: clock.clock)
    let entry = StorageEntry(key: key, data: Data("ours".utf8), createdAt: clock.now, updatedAt: clock.now)
    await #expect(throws: StorageError.self) { try await engine.writeEntries([entry]) }
    #expect(try await others.read(key: key) == value)
  }
}
