import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import Testing

@Suite("Unusual file systems")
struct UnusualFileSystemTests {
  /// The checks need the superuser; otherwise they are skipped.
  @Test("An engine that does not work on the kit's small file system does not fail the checks that use it")
  func smallFileSystem() async {
    let claims = ReferenceEngine.promises
    let suite = ConformanceSuite("Needs attributes", capabilities: claims, budget: .quick) {
      if $0.pathComponents.contains("disk") {
        throw StorageError(.unsupported, "\($0.path) is on a file system without extended attributes.")
      }
      return try ReferenceEngine(directory: $0, claiming: claims)
    }
    let checks = suite.checks.filter {
      [.f1, .f3].contains($0.rule) && $0.id.contains("disk") || $0.id == "faults.read-only-store"
    }
    #expect(checks.count > 3)
    for check in checks {
      let failure = await check.outcome().failure
      #expect(failure == nil, "\(check.id): \(failure?.actual ?? "")")
    }
  }
}
