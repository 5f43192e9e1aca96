import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTestSupport
import Testing

@Suite("A cache in front of expiring entries", .timeLimit(.minutes(60)))
struct CachedExpiryTests {
  private let base = FailingStorageEngine(MemoryStorageEngine())
  private let clock = HandSetClock()
  private let key = CacheKey(verbatim: "k")
  private let value = Data("value".utf8)

  private var expiring: ExpiringEngine<FailingStorageEngine> {
    base.expiring(after: .seconds(60), clock: clock.clock)
  }

  /// Reads often enough for a cache to subscribe to the feed.
  private func readOften(_ engine: some StorageEngine) async throws {
    for _ in 0..<1_000 {
      #expect(try await engine.read(key: key) == value)
      await Task.yield()
    }
  }

  @Test("An expired entry is absent in the cache too")
  func expires() async throws {
    let engine = expiring.cached(limit: .unlimited)
    try await engine.write(value, key: key)
    try await readOften(engine)
    clock.advance(60)
    #expect(try await engine.read(key: key) == nil)
    #expect(try await engine.keyExists(key) == false)
  }

  @Test("It is absent even with other layers in between")
  func expiresBehindOthers() async throws {
    let engine = expiring.checksummed().instrumented(by: CallRecorder()).cached(limit: .unlimited)
    try await engine.write(value, key: key)
    base.resetCalls()
    try await readOften(engine)
    #expect(base.calls.count { $0.method == .read } == 1_000)
    clock.advance(60)
    #expect(try await engine.read(key: key) == nil)
  }

  @Test("An entry that expires in a layer in front of the cache is absent")
  func expiresInFront() async throws {
    let engine = base.cached(limit: .unlimited).expiring(after: .seconds(60), clock: clock.clock)
    try await engine.write(value, key: key)
    try await readOften(engine)
    clock.advance(60)
    #expect(try await engine.read(key: key) == nil)
  }
}
