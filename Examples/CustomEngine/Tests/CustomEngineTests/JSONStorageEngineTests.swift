import ConformanceKit
import CustomEngine
import Testing

private let suite = ConformanceSuite(
  "JSON", capabilities: .persistent, budget: .quick,
  worker: ConformanceWorker(product: "custom-engine-worker")
) { try JSONStorageEngine(directory: $0) }

@Test("The engine conforms to the contract", arguments: suite.checks)
func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
