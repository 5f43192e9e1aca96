import ConformanceKit
import Foundation
import StockroomCore
import StockroomLMDB
import TestFixtures
import Testing

@Suite struct LMDBConformanceTests {
  static let suite = {
    let everywhere: EngineCapabilities = [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .multiProcess, .transactions, .changeFeed,
      .preservesTimestamps,
    ]
    #if canImport(Darwin)
      let capabilities = everywhere
    #else
      let capabilities = everywhere.union(.durableWrites)
    #endif
    return ConformanceSuite(
      "LMDB", capabilities: capabilities, stallTimeout: .seconds(600), budget: .quick,
      worker: ConformanceWorker(product: "stockroom", arguments: ["serve", "checks", "lmdb"])
    ) { try LMDBStorageEngine(directory: FileManager.Directory(url: $0)) }
  }()

  @Test("The LMDB engine conforms to the contract", arguments: suite.checks.spread)
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
}
