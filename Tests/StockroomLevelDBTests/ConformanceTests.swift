import ConformanceKit
import Foundation
import StockroomCore
import StockroomLevelDB
import TestFixtures
import Testing

@Suite struct LevelDBConformanceTests {
  static let suite = ConformanceSuite(
    "LevelDB",
    capabilities: [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .detectsCorruption,
      .transactions, .changeFeed, .preservesTimestamps,
    ], stallTimeout: .seconds(600), budget: .quick,
    worker: ConformanceWorker(product: "stockroom", arguments: ["serve", "checks", "leveldb"])
  ) { try LevelDBStorageEngine(directory: FileManager.Directory(url: $0)) }

  @Test("The LevelDB engine conforms to the contract", arguments: suite.checks.spread)
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
}
