import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTestSupport
import Testing

@Suite("Writes through a cache that take effect after their call has returned", .timeLimit(.minutes(60)))
struct CachedLateWriteTests {
  private let key = CacheKey(verbatim: "k")
  private let old = Data("old".utf8)
  private let new = Data("new".utf8)

  /// Reads until a value comes from the cache, which has subscribed to the feed by then.
  private func waitForSubscription(
    _ engine: CachedEngine<FailingStorageEngine>
  ) async throws {
    var before = -1
    while engine.base.callCount > before {
      before = engine.base.callCount
      _ = try await engine.read(key: .init("first"))
      await Task.yield()
    }
  }

  @Test("A write of unknown outcome is visible once it has taken effect")
  func write() async throws {
    let late = LateWrites()
    let engine = FailingStorageEngine(late).cached(limit: .unlimited)
    try await waitForSubscription(engine)
    try await engine.write(old, key: key)
    late.delayNext()
    let error = await #expect(throws: StorageError.self) { try await engine.write(new, key: key) }
    #expect(error?.code == .outcomeUnknown)
    try await waitForSubscription(engine)
    for _ in 0..<2 { #expect(try await engine.read(key: key) == old) }
    try await late.takeEffect()
    #expect(try await engine.read(key: key) == new)
  }

  @Test("After a write of unknown outcome values are cached again")
  func keepsAgain() async throws {
    let late = LateWrites()
    let engine = FailingStorageEngine(late).cached(limit: .unlimited)
    try await waitForSubscription(engine)
    late.delayNext()
    await #expect(throws: StorageError.self) { try await engine.write(new, key: key) }
    try await waitForSubscription(engine)
    try await engine.write(old, key: key)
    engine.base.resetCalls()
    #expect(try await engine.read(key: key) == old)
    #expect(engine.base.calls.isEmpty)
  }
}

/// An engine whose failed writes may take effect later, as on a server.
private final class LateWrites: StorageLayer {
  private struct Write {
    let data: Data
    let key: CacheKey
    let origin: ChangeOrigin?
  }

  let base = MemoryStorageEngine()
  private let isDelaying = MutexProtected(false)
  private let delayed = MutexProtected<[Write]>([])

  /// Makes the next write throw `.outcomeUnknown` before it takes effect.
  func delayNext() { isDelaying.withLock { $0 = true } }

  func takeEffect() async throws {
    let writes = delayed.withLock { $0 }
    for write in writes {
      try await ChangeOrigin.$current.withValue(write.origin) {
        try await base.write(write.data, key: write.key)
      }
    }
  }

  func write(_ data: Data, key: CacheKey) async throws {
    let isDelayed = isDelaying.withLock { isDelaying in
      defer { isDelaying = false }
      return isDelaying
    }
    guard isDelayed else { return try await base.write(data, key: key) }
    let write = Write(data: data, key: key, origin: ChangeOrigin.current)
    delayed.withLock { $0.append(write) }
    throw StorageError(.outcomeUnknown, "The connection is lost.")
  }
}
