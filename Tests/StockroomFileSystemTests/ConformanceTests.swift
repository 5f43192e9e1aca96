import ConformanceKit
import StockroomCore
import StockroomFileSystem
import TestFixtures
import Testing

@Suite struct FileSystemConformanceTests {
  static let suites = Durability.allCases.map { durability in
    var capabilities: EngineCapabilities = [
      .persistent, .atomicBatches, .orderedScans, .multiProcess, .transactions, .changeFeed,
      .preservesTimestamps,
    ]
    if durability == .full { capabilities.insert(.durableWrites) }
    return ConformanceSuite(
      "file system, \(durability)", capabilities: capabilities,
      stallTimeout: .seconds(600), budget: .quick,
      worker: ConformanceWorker(
        product: "stockroom", arguments: ["serve", "checks", "files", "--durability", durability.rawValue])
    ) { try DiskStorageEngine(directory: .init(url: $0), durability: durability) }
  }

  /// Checks whose code paths depend on the durability run with both.
  static let checks = suites.flatMap { suite in
    suite.checks.filter {
      suite.capabilities.contains(.durableWrites) || [.w4, .w6, .f1, .f2, .f3, .f4].contains($0.rule)
    }
  }

  @Test("The file-system engine conforms to the contract", arguments: checks.spread)
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
}
