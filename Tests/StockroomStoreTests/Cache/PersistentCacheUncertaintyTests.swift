import Foundation
import StockroomCore
import StockroomTestSupport
import StockroomMemory
import StockroomStore
import Testing

@Suite("PersistentCache: failures of unknown outcome", .timeLimit(.minutes(60)))
struct PersistentCacheUncertaintyTests {
  @Test("After a store whose acknowledgement was lost, a read goes to storage")
  func lostAcknowledgement() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let cache = PersistentCache<String, Int>(storage: engine)
    try await cache.store(1, forKey: "key")
    engine.failCall(1, .afterwards)
    #expect(await code { try await cache.store(2, forKey: "key") } == .io)
    #expect(try await cache["key"] == 2)
    engine.failCall(1, .afterwards)
    #expect(await code { try await cache.removeValue(forKey: "key") } == .io)
    #expect(try await cache["key"] == nil)
  }

  @Test(
    "After a group with an unknown outcome fails, reads go to storage even if its members fail for other reasons"
  )
  func lostAcknowledgementOfGroup() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let cache = PersistentCache<Int, String>(storage: engine)
    for key in 0..<50 { try await cache.store("old", forKey: key) }
    engine.hold()
    engine.failEveryCall(.afterwards) { $0.isWrite && $0.keys.count > 1 }
    engine.failEveryCall(with: StorageError(.diskFull, "No room.")) { $0.isWrite && $0.keys.count == 1 }
    try await withThrowingTaskGroup(of: Void.self) { group in
      for key in 0..<50 {
        group.addTask { #expect(await code { try await cache.store("new", forKey: key) } != nil) }
      }
      // While this call is held, others queue up behind it.
      try await engine.waitForHeldCalls()
      for _ in 0..<200 { await Task.yield() }
      engine.release()
      try await group.waitForAll()
    }
    let fresh = PersistentCache<Int, String>(storage: engine)
    for key in 0..<50 { #expect(try await cache[key] == fresh[key]) }
  }

  @Test("An unwritten assignment survives a store with an unknown outcome")
  func unwritten() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let cache = PersistentCache<String, Int>(storage: engine)
    engine.failEveryCall(.afterwards) { $0.isWrite }
    cache["key"] = 1
    #expect(await code { try await cache.store(2, forKey: "key") } == .io)
    #expect(try await cache["key"] == 1)
    #expect(await code { try await cache.sync() } == .io)
    engine.clearFaults()
    try await cache.sync()
    cache.clearMemoryCache()
    #expect(try await cache["key"] == 1)
  }

  @Test("A failure to load the sizes is reported, and only sync retries it")
  func uncountable() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let scans = { engine.calls.filter { $0.method == .scan }.count }
    engine.failEveryCall { $0.method == .scan }
    let cache = PersistentCache<Int, Int>(storage: engine, storageLimit: CacheLimit(entries: 5))
    for key in 0..<20 { try await cache.store(key, forKey: key) }
    #expect(scans() == 1)
    for attempt in 1...3 {
      #expect(await code { try await cache.sync() } == .io)
      #expect(scans() == attempt)
    }
    cache[20] = 20
    engine.clearFaults()
    try await cache.sync()
    #expect(scans() == 4)
    #expect(try await engine.keyCount() == 5)
    for key in 21..<30 { try await cache.store(key, forKey: key) }
    #expect(scans() == 4)
    #expect(try await engine.keyCount() == 5)
  }

  @Test("After a removeAll whose acknowledgement was lost, reads go to storage")
  func lostAcknowledgementOfRemoveAll() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let cache = PersistentCache<Int, Int>(storage: engine)
    for key in 0..<10 { try await cache.store(key, forKey: key, expiresIn: -1) }
    engine.failCall(1, .afterwards) { $0.isWrite }
    #expect(await code { try await cache.removeAll() } == .io)
    for key in 0..<10 { #expect(try await cache[item: key] == nil) }

    for key in 0..<10 { try await cache.store(key, forKey: key, expiresIn: -1) }
    engine.failCall(1, .afterwards) { $0.isWrite }
    #expect(await code { try await cache.removeExpired() } == .io)
    for key in 0..<10 { #expect(try await cache[item: key] == nil) }
  }

  @Test("A write whose acknowledgement was lost counts towards the storage limit")
  func lostAcknowledgementWithinLimit() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let limit = CacheLimit(entries: 5, bytes: 50)
    let cache = PersistentCache<Int, String>(storage: engine, storageLimit: limit)
    for key in 0..<5 { try await cache.store("12345678", forKey: key) }
    engine.failEveryCall(.afterwards) { $0.isWrite }
    for key in 5..<9 { _ = await code { try await cache.store("12345678", forKey: key) } }
    _ = await code { try await cache.removeValue(forKey: 4) }
    engine.clearFaults()
    try await cache.store("x", forKey: 10)
    #expect(try await engine.keyCount() <= 5)
    #expect(try await engine.readAllData().count <= 5)
    #expect(try await cache[10] == "x")
  }

  @Test("A later sync removes entries above the storage limit whose removal failed")
  func limitAfterFailure() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let cache = PersistentCache<Int, Int>(storage: engine, storageLimit: CacheLimit(entries: 5))
    for key in 0..<5 { try await cache.store(key, forKey: key) }
    engine.failCall(1) { $0.method == .removeMany || $0.method == .remove }
    try await cache.store(5, forKey: 5)
    #expect(try await engine.keyCount() == 6)
    #expect(await code { try await cache.sync() } == .io)
    try await cache.sync()
    #expect(try await engine.keyCount() == 5)
  }

  @Test("A cancelled removeAll has no effect, not even on loads in progress")
  func cancelledRemoveAll() async throws {
    let cache = PersistentCache<String, Int>(storage: MemoryStorageEngine())
    let (isLoading, mayLoad) = (Latch(), Latch())
    let load = Task {
      try await cache.fetch("key") {
        isLoading.open()
        await mayLoad.wait()
        return 1
      }
    }
    await isLoading.wait()
    let removal = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      try await cache.removeAll()
    }
    await #expect(throws: CancellationError.self) { try await removal.value }
    mayLoad.open()
    #expect(try await load.value == 1)
    #expect(try await cache["key"] == 1)
  }
}
