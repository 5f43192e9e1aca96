import ConformanceKit
import Foundation
import StockroomCore
import StockroomSQLite
import TestFixtures
import Testing

@Suite struct SQLiteConformanceTests {
  static let suite = ConformanceSuite(
    "SQLite",
    capabilities: [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .multiProcess,
      .transactions, .changeFeed, .preservesTimestamps,
    ],
    stallTimeout: .seconds(600), budget: .quick,
    worker: ConformanceWorker(product: "stockroom", arguments: ["serve", "checks", "sqlite"])
  ) { try SQLiteStorageEngine(directory: FileManager.Directory(url: $0)) }

  @Test("The SQLite engine conforms to the contract", arguments: suite.checks.spread)
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
}
