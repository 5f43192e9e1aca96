import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomStore
import Testing

@Suite("A stored value in an engine whose entries expire") struct AsyncStoredValueExpiryTests {
  private let clock = ManualClock()

  @Test("Once it has expired it is the default, for get() and for updates", arguments: [false, true])
  func expires(isBehindLayer: Bool) async throws {
    let time = ExpiryClock(now: clock.now, uptime: { .zero })
    let expiring = MemoryStorageEngine().expiring(after: .seconds(60), clock: time)
    let engine: any StorageEngine = try isBehindLayer ? expiring.namespaced("n") : expiring
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    try await value.set(["session"])
    #expect(try await value.get() == ["session"])
    clock.advance(by: 59)
    try await value.append("more")
    clock.advance(by: 59)
    #expect(try await value.get() == ["session", "more"])
    clock.advance(by: 1)
    #expect(try await value.get() == ["default"])
    #expect(value.wrappedValue == ["default"])
    try await value.set(["session"])
    clock.advance(by: 60)
    try await value.append("new")
    #expect(value.wrappedValue == ["default", "new"])
    let other = AsyncStoredValue(wrappedValue: [String](), storage: engine, key: "list")
    #expect(try await other.get() == ["default", "new"])
  }
}
