import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

@Suite("PersistentCache: limits")
struct PersistentCacheLimitTests {
  /// The keys in memory, for a cache without storage.
  private func kept<Value>(_ keys: Range<Int>, in cache: PersistentCache<Int, Value>) async throws -> [Int] {
    var kept: [Int] = []
    for key in keys where try await cache[key] != nil { kept.append(key) }
    return kept
  }

  @Test("Memory evicts the least recently used entry first")
  func leastRecentlyUsed() async throws {
    let cache = PersistentCache<Int, Int>(storage: nil, memoryLimit: CacheLimit(entries: 3))
    for key in 0..<3 { cache[key] = key }
    _ = try await cache[0]
    cache[3] = 3
    _ = try await cache[item: 2]
    cache[4] = 4
    cache[4] = 5
    #expect(try await kept(0..<5, in: cache) == [2, 3, 4])
  }

  @Test("The order of use stays correct over many operations")
  func orderOfUse() async throws {
    let cache = PersistentCache<Int, Int>(storage: nil, memoryLimit: CacheLimit(entries: 10))
    var model: [Int] = []  // Newest last.
    var generator = SystemRandomNumberGenerator()
    for step in 0..<20_000 {
      let key = Int.random(in: 0..<30, using: &generator)
      let isKept = model.contains(key)
      model.removeAll { $0 == key }
      switch step % 7 {
      case 0: cache[key] = nil
      case 1, 2, 3:
        cache[key] = key
        model.append(key)
        if model.count > 10 { model.removeFirst() }
      default:
        #expect(try await cache[key] == (isKept ? key : nil))
        if isKept { model.append(key) }
      }
    }
  }

  @Test("The memory limit in bytes applies with and without storage", arguments: [true, false])
  func bytes(isStored: Bool) async throws {
    let storage = isStored ? HookedEngine() : nil
    // The JSON of each value has 102 bytes.
    let value = String(repeating: "x", count: 100)
    let cache = PersistentCache<Int, String>(
      storage: storage, memoryLimit: CacheLimit(entries: 100, bytes: 3 * 102 + 101))
    for key in 0..<10 {
      cache[key] = value
      try await cache.sync()
    }
    // Only memory returns a value without a read.
    var kept: [Int] = []
    for key in (0..<10).reversed() {
      let reads = storage?.reads ?? 0
      let value = try await cache[key]
      if value != nil, storage?.reads ?? 0 == reads { kept.append(key) }
      if kept.count < 10 - key { break }
    }
    #expect(kept == [9, 8, 7])
  }

  @Test("A value larger than the limit in bytes evicts nothing")
  func largerThanMemory() async throws {
    let cache = PersistentCache<Int, String>(storage: nil, memoryLimit: CacheLimit(bytes: 100))
    cache[1] = "small"
    cache[2] = "small"
    try await cache.sync()
    cache[2] = String(repeating: "x", count: 1_000)
    #expect(try await cache[2]?.count == 1_000)
    try await cache.sync()
    #expect(try await kept(0..<3, in: cache) == [1])
  }

  @Test("With a limit in bytes, a value that cannot be encoded is reported and not kept")
  func unencodableWithByteLimit() async throws {
    let cache = PersistentCache<Int, Double>(storage: nil, memoryLimit: CacheLimit(entries: 2, bytes: 100))
    cache[0] = 0
    for key in 1..<4 { cache[key] = .nan }
    #expect(await code { try await cache.sync() } == .encodingFailed)
    try await cache.sync()
    #expect(try await kept(0..<4, in: cache) == [0])
    #expect(await code { try await cache.store(.nan, forKey: 3) } == .encodingFailed)
  }

  @Test("A value too large for the engine counts in memory with its size")
  func tooLargeForTheEngine() async throws {
    let storage = HookedEngine()
    storage.beforeChange { changes in
      if changes.contains(where: { $0.data?.count ?? 0 > 100 }) {
        throw StorageError(.valueTooLarge, "Too large.")
      }
    }
    // The JSON of each value has 102 bytes.
    let cache = PersistentCache<Int, String>(storage: storage, memoryLimit: CacheLimit(bytes: 3 * 102 + 101))
    for key in 0..<10 { cache[key] = String(repeating: "x", count: 100) }
    #expect(await code { try await cache.sync() } == .valueTooLarge)
    #expect(try await kept(0..<10, in: cache) == [7, 8, 9])
  }

  @Test(
    "A limit of zero keeps nothing in memory",
    arguments: [
      CacheLimit(entries: 0), CacheLimit(entries: -1), CacheLimit(bytes: 0), CacheLimit(bytes: .min),
    ])
  func nothing(_ limit: CacheLimit) async throws {
    let alone = PersistentCache<Int, Int>(storage: nil, memoryLimit: limit)
    alone[1] = 1
    try await alone.sync()
    #expect(try await alone[1] == nil)
    let stored = PersistentCache<Int, Int>(storage: MemoryStorageEngine(), memoryLimit: limit)
    stored[1] = 1
    #expect(try await stored[1] == 1)
    try await stored.sync()
    #expect(try await stored[1] == 1)
    #expect(try await stored.fetch(2) { 2 } == 2)
    try await stored.store(3, forKey: 3)
    #expect(try await stored[3] == 3)
  }

  @Test("Unwritten assignments do not count towards the limit and are not evicted")
  func unwrittenIsKept() async throws {
    let storage = HookedEngine()
    let latch = Latch()
    storage.beforeChange { _ in await latch.wait() }
    let cache = PersistentCache<Int, Int>(storage: storage, memoryLimit: CacheLimit(entries: 1))
    for key in 0..<1_000 { cache[key] = key }
    cache.clearMemoryCache()
    for key in 0..<1_000 { #expect(try await cache[key] == key) }
    #expect(storage.reads == 0)
    latch.open()
    try await cache.sync()
    for key in 0..<1_000 { #expect(try await cache[key] == key) }
  }

  @Test("Storage evicts the entry with the oldest write first", arguments: AnyEngine.all)
  func oldestInStorage(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    let clock = ManualClock()
    let open = {
      PersistentCache<Int, Int>(
        storage: storage, namespace: "n", memoryLimit: CacheLimit(entries: 0),
        storageLimit: CacheLimit(entries: 5),
        now: clock.now)
    }
    let foreign = PersistentCache<Int, Int>(storage: storage, namespace: "o")
    for key in 0..<10 { try await foreign.store(key, forKey: key) }

    let cache = open()
    for key in 0..<5 {
      clock.advance(by: 1)
      try await cache.store(key, forKey: key)
    }
    clock.advance(by: 1)
    try await cache.store(10, forKey: 1)
    _ = try await cache[0]
    clock.advance(by: 1)
    try await cache.store(5, forKey: 5)
    #expect(try await kept(0..<10, in: cache) == [1, 2, 3, 4, 5])

    // A new cache reads the same order.
    let reopened = open()
    clock.advance(by: 1)
    for key in 6..<9 { reopened[key] = key }
    try await reopened.sync()
    #expect(try await kept(0..<10, in: reopened) == [1, 5, 6, 7, 8])
    try await reopened.removeValue(forKey: 7)
    try await reopened.store(9, forKey: 9)
    #expect(try await kept(0..<10, in: reopened) == [1, 5, 6, 8, 9])
    try await reopened.removeAll()
    for key in 0..<6 { reopened[key] = key }
    try await reopened.sync()
    #expect(try await kept(0..<10, in: reopened) == [1, 2, 3, 4, 5])
    #expect(try await storage.keyCount() == 15)
  }

  @Test("The storage limit in bytes applies, and a value above it is not stored")
  func bytesInStorage() async throws {
    let cache = PersistentCache<Int, String>(
      storage: MinimalEngine(), memoryLimit: CacheLimit(entries: 0), storageLimit: CacheLimit(bytes: 350))
    for key in 0..<10 { try await cache.store(String(repeating: "x", count: 98), forKey: key) }
    #expect(try await kept(0..<20, in: cache) == [7, 8, 9])
    try await cache.store(String(repeating: "y", count: 348), forKey: 10)
    #expect(try await kept(0..<20, in: cache) == [10])
    try await cache.store("small", forKey: 11)
    try await cache.store(String(repeating: "z", count: 349), forKey: 11)
    #expect(try await kept(0..<20, in: cache) == [])
    try await cache.store("small", forKey: 12)
    try await cache.store(String(repeating: "z", count: 349), forKey: 13)
    #expect(try await kept(0..<20, in: cache) == [12])
  }

  @Test("A write does not list the stored entries")
  func noListing() async throws {
    let storage = HookedEngine()
    let cache = PersistentCache<Int, Int>(storage: storage, storageLimit: CacheLimit(entries: 50))
    for key in 0..<300 { try await cache.store(key, forKey: key) }
    #expect(storage.scans == 1)
    #expect(try await storage.allKeys().count == 50)
  }
}
