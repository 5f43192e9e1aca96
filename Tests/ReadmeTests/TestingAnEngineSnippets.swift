// The Swift code of TestingAnEngine.md, which ReadmeTests compares with the page.

import ConformanceKit
import Testing

// swift-format-ignore
@Suite(.disabled("Examples/CustomEngine runs such a line.")) struct TestingAnEngineLine {
@Test(arguments: ConformanceSuite("MyEngine", capabilities: [.persistent]) { try MyEngine(directory: $0) }.checks)
func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
}
