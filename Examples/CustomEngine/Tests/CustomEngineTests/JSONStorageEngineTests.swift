import ConformanceKit
import CustomEngine
import Testing

@Test(
  "The engine keeps the contract",
  arguments: ConformanceSuite("JSON", capabilities: [.persistent]) { try JSONStorageEngine(directory: $0) }
    .checks)
func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
