import Foundation
import StockroomCore
import TestFixtures
import StockroomEngines
import Testing

@Suite struct CapabilitiesTests {
  @Test(
    "An engine has the capability durableWrites at full durability only",
    arguments: EngineCatalog.onThisMachine.map(\.name), [Durability.full, .process])
  func capabilities(name: String, durability: Durability) async throws {
    let directory = try TemporaryDirectory()
    let entry = try EngineCatalog.select([name])[0]
    let engine = try await entry.open(directory.url, durability)
    #expect(engine.capabilities == entry.capabilities(at: durability))
    #expect(!engine.capabilities.contains(.durableWrites) || durability == .full)
    try await engine.close()
  }
}
