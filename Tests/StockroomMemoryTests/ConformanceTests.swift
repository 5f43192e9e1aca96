import ConformanceKit
import StockroomMemory
import TestFixtures
import Testing

@Suite struct MemoryConformanceTests {
  static let suite = ConformanceSuite(
    "memory",
    capabilities: [
      .atomicBatches, .snapshotReads, .orderedScans, .transactions, .changeFeed, .preservesTimestamps,
    ],
    budget: .quick
  ) { _ in MemoryStorageEngine() }

  @Test("The memory engine conforms to the contract", arguments: suite.checks.spread)
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
}
