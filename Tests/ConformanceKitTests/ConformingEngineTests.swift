import ConformanceKit
import StockroomCore
import Testing

@Suite("Engines that keep the contract pass")
struct ConformingEngineTests {
  @Test(
    "six methods and a lock",
    arguments: ConformanceSuite("Locked", capabilities: []) { _ in LockedEngine() }.checks)
  func locked(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test(
    "six methods in an actor",
    arguments: ConformanceSuite("Actor", capabilities: []) { _ in ActorEngine() }.checks)
  func actor(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test(
    "everything, in memory",
    arguments: ConformanceSuite("Memory", capabilities: [.atomicBatches, .snapshotReads, .orderedScans]) {
      _ in
      try ReferenceEngine()
    }.checks)
  func memory(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test(
    "everything, in a file",
    arguments: ConformanceSuite("File", capabilities: ReferenceEngine.promises) {
      try ReferenceEngine(directory: $0)
    }.checks)
  func file(_ check: ConformanceCheck) async throws { try await check.run() }
}
