import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import TestFixtures
import Testing

@Suite(.enabled(if: PostgreSQLServer.installedPrograms() != nil, "No PostgreSQL server is installed."))
struct PostgreSQLConformanceTests {
  static let suite = ConformanceSuite(
    "PostgreSQL",
    capabilities: [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .multiProcess,
      .transactions, .changeFeed, .networked, .preservesTimestamps,
    ],
    stallTimeout: .seconds(600), budget: .quick,
    worker: ConformanceWorker(
      product: "stockroom",
      arguments: ["serve", "checks", "postgresql", "--connection", PostgreSQLServer.shared.connection]),
    server: .postgreSQL
  ) { directory in try await EngineCatalog.postgreSQL().open(directory, .full) }

  @Test("The PostgreSQL engine conforms to the contract", arguments: suite.checks.spread)
  func conforms(_ check: ConformanceCheck) async throws {
    // Some checks begin with a worker process, which needs a running server.
    try await PostgreSQLServer.shared.start()
    try await check.run()
  }
}
