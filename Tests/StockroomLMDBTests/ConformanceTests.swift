import ConformanceKit
import Foundation
import StockroomCore
import StockroomLMDB
import TestFixtures
import Testing

@Suite struct LMDBConformanceTests {
  static let suite = ConformanceSuite(
    "LMDB",
    capabilities: [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .multiProcess,
      .transactions, .changeFeed, .preservesTimestamps,
    ],
    stallTimeout: .seconds(600), budget: .quick,
    worker: ConformanceWorker(product: "stockroom", arguments: ["serve", "checks", "lmdb"])
  ) { try LMDBStorageEngine(directory: FileManager.Directory(url: $0)) }

  @Test("The LMDB engine conforms to the contract", arguments: suite.checks.spread)
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
}
