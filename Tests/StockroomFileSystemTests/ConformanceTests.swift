import ConformanceKit
import StockroomCore
import StockroomFileSystem
import Testing

@Suite struct FileSystemConformanceTests {
  static let suites = Durability.allCases.map { durability in
    ConformanceSuite(
      "file system, \(durability)",
      capabilities: [.persistent, .atomicBatches, .orderedScans, .durableWrites, .multiProcess]
    ) { try DiskStorageEngine(directory: .init(url: $0), durability: durability) }
  }

  @Test("The file-system engine keeps the contract", arguments: suites.flatMap(\.checks))
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
}
