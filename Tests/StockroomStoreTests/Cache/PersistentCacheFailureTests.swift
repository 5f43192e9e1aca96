import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

@Suite("PersistentCache: failures")
struct PersistentCacheFailureTests {
  @Test("A read from an engine that fails throws, and is never a miss", arguments: AnyEngine.all)
  func closedForReading(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    let cache = PersistentCache<String, Int>(storage: storage)
    cache["known"] = 1
    try await cache.sync()
    try await storage.close()
    #expect(try await cache["known"] == 1)
    #expect(await code { try await cache["unknown"] } == .closed)
    #expect(await code { try await cache[item: "unknown"] } == .closed)
    #expect(await code { try await cache.store(1, forKey: "known") } == .closed)
    #expect(await code { try await cache.removeValue(forKey: "known") } == .closed)
    #expect(await code { try await cache.removeAll() } == .closed)
    #expect(await code { try await cache.removeExpired() } == .closed)
    #expect(try await cache["known"] == 1)
    cache.clearMemoryCache()
    #expect(await code { try await cache["known"] } == .closed)
  }

  @Test("sync throws each write failure once", arguments: AnyEngine.all)
  func closedForWriting(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    let cache = PersistentCache<String, Int>(storage: storage)
    try await storage.close()
    cache["a"] = 1
    cache["b"] = 2
    do {
      try await cache.sync()
      Issue.record("sync did not throw")
    } catch let error as StorageError {
      #expect(error.code == .closed)
      let failures = try #require(error.underlying as? CacheWriteFailures)
      #expect(failures.count == 2 && failures.first.count == 2)
      #expect("\(failures)".contains("2 failures"))
    }
    #expect(try await cache["a"] == 1)
    #expect(await code { try await cache.sync() } == .closed)
  }

  @Test("A failed write is retried by a later sync", arguments: AnyEngine.all)
  func retry(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = HookedEngine(try await engine.open(directory))
    let cache = PersistentCache<String, Int>(storage: storage)
    cache["kept"] = 1
    cache["removed"] = 1
    try await cache.sync()
    storage.beforeChange { _ in throw StorageError(.diskFull, "No room.") }
    cache["kept"] = 2
    cache["removed"] = nil
    #expect(await code { try await cache.sync() } == .diskFull)
    // Storage still has the old values, but no caller sees them.
    cache.clearMemoryCache()
    #expect(try await cache["kept"] == 2)
    #expect(try await cache["removed"] == nil)
    #expect(try await PersistentCache<String, Int>(storage: storage)["kept"] == 1)
    storage.beforeChange(nil)
    try await cache.sync()
    #expect(try await PersistentCache<String, Int>(storage: storage)["kept"] == 2)
    #expect(try await PersistentCache<String, Int>(storage: storage)["removed"] == nil)
    cache.clearMemoryCache()
    #expect(try await cache["kept"] == 2)
  }

  @Test("An old value does not reappear if the new one was neither written nor kept")
  func noOldValue() async throws {
    let storage = HookedEngine()
    let cache = PersistentCache<Int, String>(storage: storage, memoryLimit: CacheLimit(entries: 1))
    cache[1] = "old"
    try await cache.sync()
    storage.beforeChange { _ in throw StorageError(.io, "Broken.") }
    cache[1] = "new"
    cache[2] = "other"
    #expect(await code { try await cache.sync() } == .io)
    #expect(try await cache[1] == nil)
    #expect(try await cache[2] == "other")
    #expect(try await cache.fetch(1) { "loaded" } == "loaded")
    #expect(await code { try await cache.sync() } == .io)
    storage.beforeChange(nil)
    try await cache.sync()
    #expect(try await cache[1] != "old")
    try await cache.store("stored", forKey: 1)
    #expect(try await cache[1] == "stored")
    #expect(try await PersistentCache<Int, String>(storage: storage)[1] == "stored")
  }

  @Test("A value that cannot be encoded is reported, and the stored one is removed")
  func unencodable() async throws {
    let storage = MemoryStorageEngine()
    let cache = PersistentCache<String, Double>(storage: storage)
    try await cache.store(1, forKey: "key")
    cache["key"] = .nan
    cache["other"] = 2
    #expect(try await cache["key"]?.isNaN == true)
    #expect(await code { try await cache.sync() } == .encodingFailed)
    try await cache.sync()
    #expect(try await cache["key"]?.isNaN == true)
    #expect(try await cache["other"] == 2)
    let other = PersistentCache<String, Double>(storage: storage)
    #expect(try await other["key"] == nil)
    #expect(try await other["other"] == 2)
  }

  @Test("A store that throws changes nothing")
  func failedStore() async throws {
    let storage = HookedEngine()
    let cache = PersistentCache<String, Double>(storage: storage)
    try await cache.store(1, forKey: "key")
    #expect(await code { try await cache.store(.nan, forKey: "key") } == .encodingFailed)
    storage.beforeChange { _ in throw StorageError(.valueTooLarge, "Too large.") }
    #expect(await code { try await cache.store(2, forKey: "key") } == .valueTooLarge)
    #expect(await code { try await cache.removeValue(forKey: "key") } == .valueTooLarge)
    #expect(await code { try await cache.removeAll() } == .valueTooLarge)
    #expect(try await cache["key"] == 1)
    cache.clearMemoryCache()
    #expect(try await cache["key"] == 1)
    try await cache.sync()
  }

  @Test("A value that is too large is reported, and the other values are written")
  func oneInABatch() async throws {
    let storage = HookedEngine()
    let cache = PersistentCache<Int, String>(storage: storage)
    try await cache.store("old", forKey: 50)
    storage.beforeChange { changes in
      if changes.contains(where: { $0.data?.count ?? 0 > 1_000 }) {
        throw StorageError(.valueTooLarge, "Too large.")
      }
    }
    for key in 0..<100 { cache[key] = key == 50 ? String(repeating: "x", count: 2_000) : "\(key)" }
    #expect(try await cache[50]?.count == 2_000)
    #expect(await code { try await cache.sync() } == .valueTooLarge)
    try await cache.sync()
    cache.clearMemoryCache()
    for key in 0..<100 { #expect(try await cache[key] == (key == 50 ? nil : "\(key)")) }
  }

  @Test(
    "An error that would fail every call causes one call per batch, not one per entry",
    arguments: [StorageError.Code.locked, .closed, .unavailable, .outcomeUnknown])
  func errorOfEveryCall(_ expected: StorageError.Code) async throws {
    let storage = HookedEngine()
    let cache = PersistentCache<Int, Int>(storage: storage)
    let (isWriting, mayFail) = (Latch(), Latch())
    let calls = Shared(0)
    storage.beforeChange { _ in
      calls.withLock { $0 += 1 }
      isWriting.open()
      await mayFail.wait()
      throw StorageError(expected, "Not now.")
    }
    cache[0] = 0
    await isWriting.wait()
    for key in 1...20 { cache[key] = key }
    mayFail.open()
    #expect(await code { try await cache.sync() } == expected)
    // The first change, the others in one batch, and the first again, which the synchronization retries.
    #expect(calls.withLock { $0 } <= 3)
    #expect(try await cache[20] == 20)
    storage.beforeChange(nil)
    try await cache.sync()
    #expect(try await storage.keyCount() == 21)
  }

  @Test(
    "An entry that cannot be decoded throws with its key until it is assigned or removed",
    arguments: AnyEngine.all)
  func undecodable(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    let numbers = PersistentCache<String, Int>(storage: storage, namespace: "n")
    let texts = PersistentCache<String, String>(storage: storage, namespace: "n")
    for key in ["a", "b", "c"] { try await texts.store("text", forKey: key) }
    for key in ["a", "b", "c"] {
      do {
        _ = try await numbers[key]
        Issue.record("\(key) did not throw")
      } catch let error as StorageError {
        #expect(error.code == .decodingFailed)
        #expect("\(error)".contains("cache:1:n:=\(key)"))
      }
    }
    numbers["a"] = 1
    numbers["b"] = nil
    #expect(try await numbers["a"] == 1)
    #expect(try await numbers["b"] == nil)
    try await numbers.sync()
    numbers.clearMemoryCache()
    #expect(try await numbers["a"] == 1)
    #expect(await code { try await numbers["c"] } == .decodingFailed)
    try await numbers.removeAll()
    #expect(try await numbers["c"] == nil)
  }

  @Test("fetch loads and replaces an entry that cannot be decoded", arguments: AnyEngine.all)
  func undecodableFetched(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    let numbers = PersistentCache<String, Int>(storage: storage, namespace: "n")
    let texts = PersistentCache<String, String>(storage: storage, namespace: "n")
    try await texts.store("text", forKey: "kept")
    try await texts.store("text", forKey: "expiring", expiresIn: 1_000)
    try await texts.store("text", forKey: "expired", expiresIn: -1)
    try await storage.write(Data("no entry".utf8), key: CacheKey(verbatim: "cache:1:n:=foreign"))
    let loads = Shared(0)
    for key in ["kept", "expiring", "expired", "foreign"] {
      for _ in 0..<3 {
        let number = try await numbers.fetch(key) {
          loads.withLock { $0 += 1 }
          return 7
        }
        #expect(number == 7)
      }
    }
    #expect(loads.withLock { $0 } == 4)
    try await numbers.sync()
    let fresh = PersistentCache<String, Int>(storage: storage, namespace: "n")
    for key in ["kept", "expiring", "expired", "foreign"] { #expect(try await fresh[key] == 7) }
  }

  @Test("An expired entry that cannot be decoded is a miss for a regular read and throws for cache[item:]")
  func undecodableExpired() async throws {
    let storage = MemoryStorageEngine()
    let numbers = PersistentCache<String, Int>(storage: storage, namespace: "n")
    try await PersistentCache<String, String>(storage: storage, namespace: "n")
      .store("text", forKey: "key", expiresIn: -1)
    #expect(try await numbers["key"] == nil)
    #expect(await code { try await numbers[item: "key"] } == .decodingFailed)
  }

  @Test("A value that encoding changes is rejected")
  func changedByCoding() async throws {
    let cache = PersistentCache<String, Int??>(storage: MemoryStorageEngine())
    #expect(await code { try await cache.store(.some(nil), forKey: "key") } == .encodingFailed)
    try await cache.store(1, forKey: "key")
    try await cache.store(.none, forKey: "none")
    cache.clearMemoryCache()
    #expect(try await cache["key"] == 1)
    #expect(try await cache["none"] == .some(.none))
  }

  @Test("A value whose encoding cannot be decoded is rejected")
  func cannotBeDecoded() async throws {
    struct OnlyEncodes: Codable, Sendable {
      func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(1)
      }
      init() {}
      init(from decoder: any Decoder) throws { throw Refusal() }
    }
    struct Refusal: Error {}
    let cache = PersistentCache<String, OnlyEncodes??>(storage: MemoryStorageEngine())
    #expect(
      await code { try await cache.store(.some(.some(OnlyEncodes())), forKey: "key") } == .encodingFailed)
  }

  @Test("A truncated or corrupted entry is a value or an error, and never a trap")
  func corrupted() async throws {
    let storage = MemoryStorageEngine()
    let cache = PersistentCache<String, Int>(storage: storage, memoryLimit: CacheLimit(entries: 0))
    for name in ["short", String(repeating: "l", count: 600)] {
      try await cache.removeAll()
      try await cache.store(12_345, forKey: name, expiresIn: 1_000)
      let key = try await storage.allKeys()[0]
      let whole = try #require(try await storage.read(key: key))
      for length in 0..<whole.count - 5 {
        try await storage.write(whole.prefix(length), key: key)
        #expect(await code { try await cache[name] } == .decodingFailed)
      }
      for index in whole.indices {
        for bit in 0..<8 {
          var bytes = whole
          bytes[index] ^= 1 << bit
          try await storage.write(bytes, key: key)
          let found = await code { try await cache[item: name] }
          #expect(found == nil || found == .decodingFailed)
        }
      }
    }
  }

  @Test("A hundred failures are listed, and all of them are counted")
  func manyFailures() async throws {
    let cache = PersistentCache<Int, Double>(storage: MemoryStorageEngine())
    for key in 0..<250 { cache[key] = .nan }
    do {
      try await cache.sync()
      Issue.record("sync did not throw")
    } catch let error as StorageError {
      let failures = try #require(error.underlying as? CacheWriteFailures)
      #expect(error.code == .encodingFailed)
      #expect(failures.count == 250 && failures.first.count == 100)
    }
  }
}
