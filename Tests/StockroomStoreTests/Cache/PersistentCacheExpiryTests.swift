import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import TestFixtures
import Testing

@testable import StockroomStore

@Suite("PersistentCache: expiry")
struct PersistentCacheExpiryTests {
  typealias Cache = PersistentCache<String, Int>

  private let clock = ManualClock()

  @Test("A regular read ignores an expired entry, and cache[item:] returns it", arguments: [true, false])
  func expired(isStored: Bool) async throws {
    let cache = Cache(storage: isStored ? MemoryStorageEngine() : nil, now: clock.now)
    cache[item: "key"] = .init(1, expiresIn: 60)
    cache["forever"] = 2
    for _ in 0..<2 {
      #expect(try await cache["key"] == 1)
      #expect(try await cache[item: "key"]?.expiresAt == clock.now() + 60)
      try await cache.sync()
      if isStored { cache.clearMemoryCache() }
    }
    clock.advance(by: 59.999)
    #expect(try await cache["key"] == 1)
    clock.advance(by: 0.001)
    for _ in 0..<2 {
      #expect(try await cache["key"] == nil)
      #expect(try await cache["forever"] == 2)
      let item = try #require(try await cache[item: "key"])
      #expect(item.value == 1)
      #expect(item.isExpired(at: clock.now()))
      if isStored { cache.clearMemoryCache() }
    }
  }

  @Test("The expiry date is preserved exactly across a restart", arguments: AnyEngine.persistent)
  func restart(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let date = clock.now() + 1 / 3
    do {
      let storage = try await engine.open(directory)
      let cache = Cache(storage: storage, now: clock.now)
      cache[item: "soon"] = .init(1, expiresAt: date)
      cache[item: "never"] = .init(2, expiresAt: nil)
      try await cache.store(3, forKey: "later", expiresIn: 100)
      try await cache.sync()
      try await storage.close()
    }
    let cache = Cache(storage: try await engine.open(directory), now: clock.now)
    #expect(try await cache[item: "soon"] == .init(1, expiresAt: date))
    #expect(try await cache[item: "never"] == .init(2))
    #expect(try await cache["soon"] == 1)
    clock.advance(by: 1)
    #expect(try await cache["soon"] == nil)
    #expect(try await cache["later"] == 3)
    clock.advance(by: 99)
    #expect(try await cache["later"] == nil)
    #expect(try await cache["never"] == 2)
  }

  @Test("A lifetime begins when the item is assigned, and an item that was read keeps its expiry date")
  func lifetime() async throws {
    let cache = Cache(storage: nil, now: clock.now)
    let item = Cache.Item(1, expiresIn: 10)
    clock.advance(by: 100)
    cache[item: "a"] = item
    #expect(try await cache[item: "a"]?.expiresAt == clock.now() + 10)
    clock.advance(by: 5)
    cache[item: "b"] = try await cache[item: "a"]
    #expect(try await cache[item: "b"]?.expiresAt == clock.now() + 5)
  }

  @Test("Negative, zero, infinite and NaN lifetimes expire immediately or never", arguments: [true, false])
  func oddLifetimes(isStored: Bool) async throws {
    let cache = Cache(storage: isStored ? MemoryStorageEngine() : nil, now: clock.now)
    for (lifetime, isOver) in [(0, true), (-1, true), (-.infinity, true), (.infinity, false), (.nan, true)]
      as [(TimeInterval, Bool)]
    {
      cache[item: "key"] = .init(1, expiresIn: lifetime)
      #expect(try await cache["key"] == (isOver ? nil : 1), "\(lifetime)")
      try await cache.sync()
      if isStored { cache.clearMemoryCache() }
      #expect(try await cache["key"] == (isOver ? nil : 1), "\(lifetime)")
    }
  }

  @Test("What has expired in the engine is not in the memory of the cache", arguments: [false, true])
  func expiringEngine(isBehindLayer: Bool) async throws {
    let time = ExpiryClock(now: clock.now, uptime: { .zero })
    let expiring = MemoryStorageEngine().expiring(after: .seconds(60), clock: time)
    let storage: any StorageEngine = try isBehindLayer ? expiring.namespaced("n") : expiring
    let (writer, reader) = (Cache(storage: storage, now: clock.now), Cache(storage: storage, now: clock.now))
    writer["assigned"] = 1
    try await writer.store(2, forKey: "stored")
    try await writer.sync()
    // The first read subscribes to the feed, before which nothing is kept anyway.
    for _ in 0..<2 {
      #expect(try await reader["assigned"] == 1)
      await reader.core.followIfNeeded()
    }
    clock.advance(by: 60)
    #expect(try await writer["assigned"] == nil)
    #expect(try await writer["stored"] == nil)
    #expect(try await reader["assigned"] == nil)
    // What is not written yet has not begun to expire.
    writer["assigned"] = 3
    #expect(try await writer["assigned"] == 3)
  }

  @Test("The system clock is the default")
  func systemClock() async throws {
    let cache = Cache(storage: nil)
    cache[item: "past"] = .init(1, expiresAt: Date() - 1)
    cache[item: "future"] = .init(1, expiresIn: 3_600)
    #expect(try await cache["past"] == nil)
    #expect(try await cache["future"] == 1)
    let expiry = try #require(try await cache[item: "future"]?.expiresAt)
    #expect(abs(expiry.timeIntervalSinceNow - 3_600) < 600)
  }

  @Test("removeExpired removes expired entries and no others", arguments: AnyEngine.all)
  func removeExpired(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    try await storage.write(Data("junk".utf8), key: CacheKey(verbatim: "cache:0::junk"))
    let cache = Cache(storage: storage, now: clock.now)
    for number in 0..<250 {
      cache[item: "\(number)"] = .init(number, expiresIn: number % 2 == 0 ? 10 : 1_000)
    }
    cache["forever"] = -1
    clock.advance(by: 10)
    try await cache.removeExpired()
    #expect(try await storage.keyCount() == 125 + 2)
    #expect(try await cache[item: "10"] == nil)
    #expect(try await cache["11"] == 11)
    #expect(try await cache["forever"] == -1)
  }

  @Test("removeExpired keeps entries that another cache stores during the search", arguments: AnyEngine.all)
  func storedMeanwhile(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = HookedEngine(try await engine.open(directory))
    let cache = Cache(storage: storage, now: clock.now)
    let other = Cache(storage: storage.base, now: clock.now)
    for number in 0..<250 { cache[item: "\(number)"] = .init(number, expiresIn: 10) }
    try await cache.sync()
    clock.advance(by: 10)
    storage.afterScan {
      for key in ["7", "77", "177"] { try await other.store(-1, forKey: key, expiresIn: 10) }
    }
    try await cache.removeExpired()
    #expect(try await storage.keyCount() == 3)
    for key in ["7", "77", "177"] { #expect(try await cache[key] == -1) }
  }

  @Test("removeExpired keeps an entry that another cache stores between the read and the removal")
  func storedBeforeRemoval() async throws {
    let storage = HookedEngine()
    let cache = Cache(storage: storage, now: clock.now)
    let other = Cache(storage: storage.base, now: clock.now)
    cache[item: "a"] = .init(1, expiresIn: 10)
    try await cache.sync()
    clock.advance(by: 10)
    let isStored = Shared(false)
    // Within a transaction no other cache can do that.
    storage.afterRead { _ in
      await #expect(throws: Never.self) { try await other.store(-1, forKey: "a", expiresIn: 10) }
      isStored.withLock { $0 = true }
    }
    try await cache.removeExpired()
    #expect(try await storage.base.keyCount() == (isStored.withLock { $0 } ? 1 : 0))
  }
}
