import ConformanceKit
import Foundation
import StockroomCore
import StockroomFileSystem
import Testing

@Suite struct FileSystemConformanceTests {
  static let suite = ConformanceSuite(
    "file-system",
    capabilities: [.persistent, .atomicBatches, .orderedScans, .durableWrites, .multiProcess]
  ) { try DiskStorageEngine(directory: FileManager.Directory(url: $0)) }

  @Test("The file-system engine keeps the contract", arguments: suite.checks)
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
}
