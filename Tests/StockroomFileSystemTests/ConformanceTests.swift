import ConformanceKit
import StockroomCore
import StockroomFileSystem
import Testing

@Suite struct FileSystemConformanceTests {
  static let suites = Durability.allCases.map { durability in
    var capabilities: EngineCapabilities = [.persistent, .atomicBatches, .orderedScans, .multiProcess]
    if durability == .full { capabilities.insert(.durableWrites) }
    return ConformanceSuite(
      "file system, \(durability)", capabilities: capabilities,
      stallTimeout: .seconds(600), budget: .quick,
      worker: ConformanceWorker(
        product: "stockroom", arguments: ["serve-checks", "files", "--durability", durability.rawValue])
    ) { try DiskStorageEngine(directory: .init(url: $0), durability: durability) }
  }

  @Test("The file-system engine keeps the contract", arguments: suites.flatMap(\.checks))
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
}
