import FaultyEngineWorker
import ConformanceKit
import StockroomCore
import Testing

@Suite("Conforming engines")
struct ConformingEngineTests {
  @Test(
    "An actor engine with six methods passes every check",
    arguments: ConformanceSuite("Actor", capabilities: [], budget: .quick) { _ in ActorEngine() }.checks)
  func actor(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test(
    "A complete engine in a file passes every check",
    arguments: ConformanceSuite(
      "File", capabilities: ReferenceEngine.promises.union([.transactions, .changeFeed]), budget: .quick
    ) {
      try ReferenceEngine(
        directory: $0, claiming: ReferenceEngine.promises.union([.transactions, .changeFeed]))
    }.checks)
  func file(_ check: ConformanceCheck) async throws { try await check.run() }
}
