import Foundation
import StockroomCore
import StockroomEngines
import StockroomMemory
@testable import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

/// Caches and stored values that follow the changes of others.
@Suite struct CacheFollowingTests {
  private static let engines = EngineCatalog.onThisMachine.map(\.name)

  private func wait(until isTrue: () async throws -> Bool) async throws {
    while try await !isTrue() {
      try Task.checkCancellation()
      await Task.yield()
    }
  }

  @Test(
    "An entry that another cache replaces or removes is evicted from memory", .timeLimit(.minutes(60)),
    arguments: engines)
  func entries(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await EngineCatalog.select([name])[0].open(directory.url, .process)
    let one = PersistentCache<String, Int>(storage: engine, namespace: "numbers")
    let two = PersistentCache<String, Int>(storage: engine, namespace: "numbers")
    let long = String(repeating: "k", count: 600)
    for key in ["a", long] {
      try await one.store(1, forKey: key)
      #expect(try await two[key] == 1)
      try await one.store(2, forKey: key)
      try await wait { try await two[key] == 2 }
      try await one.removeValue(forKey: key)
      try await wait { try await two[key] == nil }
    }
    try await one.store(3, forKey: "a")
    #expect(try await two["a"] == 3)
    try await one.removeAll()
    try await wait { try await two["a"] == nil }
  }

  @Test("A cache's own writes stay in its memory", .timeLimit(.minutes(60)))
  func ownEntries() async throws {
    let engine = MemoryStorageEngine()
    let cache = PersistentCache<String, Int>(storage: engine)
    #expect(try await cache["a"] == nil)
    try await cache.store(1, forKey: "a")
    try await cache.sync()
    // Not reported to the cache. If it had evicted its own write, it would read it again.
    try await ChangeOrigin.$current.withValue(cache.core.origin) { try await engine.removeAllData() }
    #expect(try await cache["a"] == 1)
  }

  @Test("A cache that has only written follows changes too", .timeLimit(.minutes(60)))
  func onlyWritten() async throws {
    let engine = MemoryStorageEngine()
    let one = PersistentCache<String, Int>(storage: engine)
    let two = PersistentCache<String, Int>(storage: engine)
    try await one.store(1, forKey: "a")
    try await two.store(2, forKey: "a")
    try await wait { try await one["a"] == 2 }
  }

  @Test(
    "A value that others replace during a cache's own write does not reappear", .timeLimit(.minutes(60)),
    arguments: [true, false])
  func superseded(assigning: Bool) async throws {
    let engine = MemoryStorageEngine()
    let held = FailingStorageEngine(engine)
    let one = PersistentCache<String, Int>(storage: held, storageLimit: CacheLimit(entries: 100))
    let two = PersistentCache<String, Int>(storage: engine)
    try await two.store(0, forKey: "other")
    await one.core.followIfNeeded()
    #expect(try await one["other"] == 0)
    // The first write also reads the stored size after its commit.
    held.hold { ![.apply, .read, .changes].contains($0.method) }
    let write = Task {
      if assigning { one.assign(1, forKey: "a") } else { try await one.store(1, forKey: "a") }
      try await one.sync()
    }
    try await held.waitForHeldCalls()
    try await two.store(2, forKey: "a")
    try await two.removeValue(forKey: "other")
    // The feed reports this change after that of "a".
    let other = try EncodedKey("other")
    try await wait { one.valueInMemory(other) == nil }
    held.release()
    try await write.value
    #expect(try await one["a"] == 2)
  }

  @Test(
    "Entries written while a cache cannot follow changes do not stay in memory", .timeLimit(.minutes(60)))
  func writtenWithoutFeed() async throws {
    let engine = MemoryStorageEngine()
    let failing = FailingStorageEngine(engine)
    failing.failEveryCall(where: { $0.method == .changes })
    let one = PersistentCache<String, Int>(storage: failing)
    let two = PersistentCache<String, Int>(storage: engine)
    try await one.store(1, forKey: "a")
    try await two.store(2, forKey: "a")
    #expect(try await one["a"] == 2)
    one.assign(3, forKey: "a")
    try await one.sync()
    try await two.store(4, forKey: "a")
    #expect(try await one["a"] == 4)
  }

  @Test(
    "A value loaded before another cache stored a new one is not kept", .timeLimit(.minutes(60)),
    arguments: ["a", String(repeating: "a", count: 600)])
  func storedWhileLoading(key: String) async throws {
    let engine = MemoryStorageEngine()
    let one = PersistentCache<String, Int>(storage: engine)
    let two = PersistentCache<String, Int>(storage: engine)
    try await two.store(0, forKey: "other")
    await one.core.followIfNeeded()
    #expect(try await one["other"] == 0)
    let other = try EncodedKey("other")
    let loaded = try await one.fetch(key) {
      try await two.store(2, forKey: key)
      try await two.removeValue(forKey: "other")
      // The feed reports this change after that of the key.
      try await wait { one.valueInMemory(other) == nil }
      return 1
    }
    #expect(loaded == 1)
    try await one.sync()
    #expect(try await one[key] == 2)
    #expect(try await PersistentCache<String, Int>(storage: engine)[key] == 2)
  }

  @Test(
    "A value loaded before the cache followed changes does not replace one that another cache has stored since",
    .timeLimit(.minutes(60)))
  func storedBeforeFollowing() async throws {
    let engine = MemoryStorageEngine()
    let held = FailingStorageEngine(engine)
    let one = PersistentCache<String, Int>(storage: held)
    let two = PersistentCache<String, Int>(storage: engine)
    held.hold { $0.method == .changes }
    let loaded = try await one.fetch("a") {
      try await two.store(2, forKey: "a")
      held.release()
      await one.core.followIfNeeded()
      return 1
    }
    #expect(loaded == 1)
    try await one.sync()
    #expect(try await one["a"] == 2)
    #expect(try await PersistentCache<String, Int>(storage: engine)["a"] == 2)
  }

  @Test(
    "A value is not kept if more keys were written while it was loaded than the feed names",
    .timeLimit(.minutes(60)))
  func manyWrittenWhileLoading() async throws {
    let engine = MemoryStorageEngine()
    let one = PersistentCache<String, Int>(storage: engine)
    let two = PersistentCache<String, Int>(storage: engine)
    try await two.store(2, forKey: "a")
    let stored = try await engine.readAllDataAndKeys()
    try await two.removeValue(forKey: "a")
    try await two.store(0, forKey: "other")
    await one.core.followIfNeeded()
    #expect(try await one["other"] == 0)
    let other = try EncodedKey("other")
    let unrelated = (0...1_000).map { (key: CacheKey(verbatim: "unrelated \($0)"), data: Data()) }
    let loaded = try await one.fetch("a") {
      // One change, which the feed reports as everything.
      try await engine.write(stored + unrelated)
      try await wait { one.valueInMemory(other) == nil }
      return 1
    }
    #expect(loaded == 1)
    try await one.sync()
    #expect(try await one["a"] == 2)
    #expect(try await PersistentCache<String, Int>(storage: engine)["a"] == 2)
  }

  @Test(
    "A stored value that is only set follows changes as soon as possible", .timeLimit(.minutes(60)))
  func onlySet() async throws {
    let engine = MemoryStorageEngine()
    let failing = FailingStorageEngine(engine)
    failing.failCall(with: StorageError(.unavailable, "Away")) { $0.method == .changes }
    let value = AsyncStoredValue(wrappedValue: 0, storage: failing, key: "number")
    // The load does not subscribe. An attempt that was slow to fail is not repeated immediately.
    try await wait {
      try await value.set(1)
      return failing.calls.count { $0.method == .changes } == 2
    }
    try await AsyncStoredValue(wrappedValue: 0, storage: engine, key: "number").set(3)
    try await wait { value.wrappedValue == 3 }
  }

  @Test(
    "A stored value whose write fails shows what others stored before it followed changes",
    .timeLimit(.minutes(60)))
  func failedWriteOfFollower() async throws {
    let engine = MemoryStorageEngine()
    let failing = FailingStorageEngine(engine)
    failing.failEveryCall(where: { $0.method == .changes })
    let value = AsyncStoredValue(wrappedValue: 0, storage: failing, key: "number")
    try await value.valueHasLoaded()
    try await AsyncStoredValue(wrappedValue: 0, storage: engine, key: "number").set(3)
    failing.clearFaults()
    failing.failEveryCall(with: StorageError(.diskFull, "No room.")) { $0.isWrite }
    failing.resetCalls()
    // An attempt to follow that was slow to fail is not repeated immediately.
    try await wait {
      await #expect(throws: StorageError.self) { try await value.set(1) }
      return failing.calls.contains { $0.method == .changes }
    }
    #expect(value.wrappedValue == 3)
  }

  @Test("A read does not wait until the cache follows changes", .timeLimit(.minutes(60)))
  func readBeforeFollowing() async throws {
    let engine = MemoryStorageEngine()
    let held = FailingStorageEngine(engine)
    let one = PersistentCache<String, Int>(storage: held)
    let two = PersistentCache<String, Int>(storage: engine)
    try await two.store(1, forKey: "a")
    held.hold { $0.method == .changes }
    #expect(try await one["a"] == 1)
    try await held.waitForHeldCalls()
    try await two.store(2, forKey: "a")
    // The cache is not notified of that yet.
    #expect(try await one["a"] == 2)
    held.release()
    await one.core.followIfNeeded()
    try await two.store(3, forKey: "a")
    try await wait { try await one["a"] == 3 }
  }

  @Test("Values read from an engine that falsely claims a feed stay in memory")
  func claimedFeed() async throws {
    let engine = HookedEngine()
    try await PersistentCache<String, Int>(storage: engine).store(1, forKey: "a")
    let cache = PersistentCache<String, Int>(storage: engine)
    await cache.core.followIfNeeded()
    for _ in 0..<3 { #expect(try await cache["a"] == 1) }
    #expect(engine.reads == 1)
  }

  @Test("A stored value is updated to what others store", .timeLimit(.minutes(60)), arguments: engines)
  func storedValues(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await EngineCatalog.select([name])[0].open(directory.url, .process)
    let one = AsyncStoredValue(wrappedValue: 0, storage: engine, key: "number")
    let two = AsyncStoredValue(wrappedValue: 0, storage: engine, key: "number")
    try await one.valueHasLoaded()
    try await two.valueHasLoaded()
    try await one.set(1)
    try await wait { two.wrappedValue == 1 }
    try await two.set(2)
    try await wait { one.wrappedValue == 2 }
    try await one.reset()
    try await wait { two.wrappedValue == 0 }
  }

  @Test(
    "No write waits for a subscription after one that has failed, and nothing is missed once one succeeds",
    .timeLimit(.minutes(60)))
  func slowSubscription() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    engine.failCall { $0.method == .changes }
    let (one, two) = (
      PersistentCache<String, Int>(storage: engine), PersistentCache<String, Int>(storage: base)
    )
    try await one.store(1, forKey: "a")
    engine.hold { $0.method == .changes }
    try await one.store(2, forKey: "a")
    try await engine.waitForHeldCalls()
    try await one.store(3, forKey: "a")
    #expect(engine.calls.count { $0.method == .changes } == 2)
    try await two.store(4, forKey: "a")
    #expect(try await one["a"] == 4)
    engine.release()
    try await wait { one.core.isFollowing }
    try await one.store(5, forKey: "a")
    try await two.store(6, forKey: "a")
    try await wait { try await one["a"] == 6 }
  }
}
