import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import Testing

@Suite("PersistentCache: what is older never replaces what is newer", .timeLimit(.minutes(60)))
struct PersistentCacheOrderTests {
  private let engine = FailingStorageEngine(MemoryStorageEngine())

  /// A cache that has the value 1, whose write has failed, under the key.
  private func cacheOfFailedWrite() async -> PersistentCache<String, Int> {
    let cache = PersistentCache<String, Int>(storage: engine)
    engine.failEveryCall(with: StorageError(.diskFull, "No room.")) { $0.isWrite }
    cache["key"] = 1
    #expect(await code { try await cache.sync() } == .diskFull)
    engine.clearFaults()
    return cache
  }

  enum Change: CaseIterable { case store, remove, removeAll }

  @Test(
    "A failed write is not retried over a change that is under way", arguments: Change.allCases,
    [false, true])
  func retry(change: Change, isEvicted: Bool) async throws {
    let cache = await cacheOfFailedWrite()
    engine.hold { $0.isWrite || change == .removeAll && $0.method == .allKeys || $0.method == .scan }
    let changing = Task {
      switch change {
      case .store: try await cache.store(2, forKey: "key")
      case .remove: try await cache.removeValue(forKey: "key")
      case .removeAll: try await cache.removeAll()
      }
    }
    try await engine.waitForHeldCalls()
    if isEvicted { cache.clearMemoryCache() }
    let syncing = Task { try await cache.sync() }
    // Enough for a retry to be queued.
    for _ in 0..<1_000 { await Task.detached {}.value }
    engine.release()
    try await changing.value
    try await syncing.value
    try await cache.sync()
    let expected = change == .store ? 2 : nil
    #expect(try await cache["key"] == expected)
    #expect(try await PersistentCache<String, Int>(storage: engine)["key"] == expected)
  }

  @Test("A failed write is retried once a change of its key has failed too")
  func retryAfterFailure() async throws {
    let cache = await cacheOfFailedWrite()
    engine.failCall(with: StorageError(.diskFull, "No room.")) { $0.isWrite }
    #expect(await code { try await cache.store(2, forKey: "key") } == .diskFull)
    try await cache.sync()
    #expect(try await PersistentCache<String, Int>(storage: engine)["key"] == 1)
  }

  @Test("A value that is loaded while another is stored is returned, and not kept")
  func fetch() async throws {
    let cache = PersistentCache<String, Int>(storage: engine)
    engine.hold { $0.method == .changes }
    let storing = Task { try await cache.store(1, forKey: "key") }
    try await engine.waitForHeldCalls()
    #expect(try await cache.fetch("key") { 2 } == 2)
    engine.release()
    try await storing.value
    try await cache.sync()
    #expect(try await cache["key"] == 1)
    #expect(try await PersistentCache<String, Int>(storage: engine)["key"] == 1)
  }

  @Test("An entry that another cache has written last is not the first one beyond the limit")
  func storageLimit() async throws {
    let limit = CacheLimit(entries: 2)
    let cache = PersistentCache<String, Int>(storage: engine, storageLimit: limit)
    let other = PersistentCache<String, Int>(storage: engine)
    for key in ["a", "b"] { try await cache.store(1, forKey: key) }
    #expect(try await cache["a"] == 1)
    try await other.store(2, forKey: "a")
    while try await cache["a"] != 2 { await Task.yield() }
    try await cache.store(1, forKey: "c")
    let fresh = PersistentCache<String, Int>(storage: engine)
    #expect(try await fresh["a"] == 2)
    #expect(try await fresh["b"] == nil)
  }

  @Test("Entries count towards the limit as other caches have left them")
  func storageLimitAfterOthers() async throws {
    let cache = PersistentCache<String, Int>(storage: engine, storageLimit: CacheLimit(bytes: 20))
    let other = PersistentCache<String, Int>(storage: engine)
    for key in ["a", "b", "c"] { try await cache.store(1, forKey: key) }
    #expect(try await cache["b"] == 1)
    try await other.removeValue(forKey: "b")
    while try await cache["b"] != nil { await Task.yield() }
    // 18 bytes.
    try await cache.store(100_000_000_000_000_000, forKey: "d")
    var fresh = PersistentCache<String, Int>(storage: engine)
    #expect(try await fresh["a"] == 1)
    #expect(try await fresh["c"] == 1)

    try await other.store(1_000, forKey: "c")
    while try await cache["c"] != 1_000 { await Task.yield() }
    try await cache.store(2, forKey: "e")
    fresh = PersistentCache(storage: engine)
    #expect(try await fresh["a"] == nil)
    #expect(try await fresh["d"] == nil)
    #expect(try await fresh["c"] == 1_000)
    #expect(try await fresh["e"] == 2)
  }
}
