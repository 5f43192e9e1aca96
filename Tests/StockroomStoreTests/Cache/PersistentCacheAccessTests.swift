import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

@Suite("PersistentCache: access")
struct PersistentCacheAccessTests {
  struct Message: Codable, Sendable, Equatable {
    var id = UUID()
    var body: String
  }

  @Test(
    "An assignment is read immediately, and by another cache once it is written", arguments: AnyEngine.all)
  func assigned(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    let cache = PersistentCache<UUID, [Message]>(storage: storage, namespace: "rooms")
    let (room, messages) = (UUID(), (0..<10).map { Message(body: "\($0)") })

    #expect(try await cache[room] == nil)
    cache[room] = messages
    #expect(try await cache[room] == messages)
    try await cache.sync()

    let other = PersistentCache<UUID, [Message]>(storage: storage, namespace: "rooms")
    #expect(try await other[room] == messages)
    cache.clearMemoryCache()
    #expect(try await cache[room] == messages)
  }

  @Test(
    "Assigning nil removes the entry, from memory immediately and from storage in the background",
    arguments: AnyEngine.all)
  func assignedNil(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    let cache = PersistentCache<String, Int>(storage: storage)
    cache["a"] = 1
    cache["b"] = 2
    try await cache.sync()
    cache["a"] = nil
    cache[item: "b"] = nil
    #expect(try await cache["a"] == nil)
    #expect(try await cache["b"] == nil)
    try await cache.sync()
    #expect(try await storage.allKeys().isEmpty)
  }

  @Test("Values survive closing and reopening", arguments: AnyEngine.persistent)
  func restart(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    do {
      let storage = try await engine.open(directory)
      let cache = PersistentCache<Int, String>(storage: storage)
      for number in 0..<100 { cache[number] = "value \(number)" }
      try await cache.sync()
      try await storage.close()
    }
    let cache = PersistentCache<Int, String>(storage: try await engine.open(directory))
    for number in 0..<100 { #expect(try await cache[number] == "value \(number)") }
  }

  @Test("When store and removeValue return, the engine has the change", arguments: AnyEngine.all)
  func acknowledged(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    let cache = PersistentCache<String, String>(storage: storage)
    let other = { PersistentCache<String, String>(storage: storage) }
    try await cache.store("value", forKey: "key")
    #expect(try await other()["key"] == "value")
    #expect(try await cache["key"] == "value")
    try await cache.store("second", forKey: "key")
    #expect(try await other()["key"] == "second")
    #expect(try await cache["key"] == "second")
    try await cache.removeValue(forKey: "key")
    #expect(try await other()["key"] == nil)
    #expect(try await cache["key"] == nil)
    try await cache.removeValue(forKey: "key")
  }

  @Test("A later assignment overrides an earlier store, and vice versa")
  func assignedAndStored() async throws {
    let storage = MemoryStorageEngine()
    let cache = PersistentCache<String, Int>(storage: storage)
    for round in 0..<100 {
      cache["key"] = round
      try await cache.store(-round, forKey: "key")
      #expect(try await cache["key"] == -round)
      cache["key"] = round
      #expect(try await cache["key"] == round)
    }
    try await cache.sync()
    cache.clearMemoryCache()
    #expect(try await cache["key"] == 99)
  }

  @Test("A cache without storage works in memory only")
  func memoryOnly() async throws {
    let cache = PersistentCache<URL, String>(storage: nil)
    let url = try #require(URL(string: "https://example.com/a"))
    cache[url] = "a"
    #expect(try await cache[url] == "a")
    try await cache.store("b", forKey: url)
    #expect(try await cache[url] == "b")
    try await cache.sync()
    try await cache.removeValue(forKey: url)
    #expect(try await cache[url] == nil)
    cache[url] = "c"
    cache.clearMemoryCache()
    #expect(try await cache[url] == nil)
    cache[url] = "d"
    try await cache.removeAll()
    #expect(try await cache[url] == nil)
    try await cache.removeExpired()
  }

  @Test("Without storage, a value that cannot be encoded is kept in memory")
  func memoryOnlyUnencodable() async throws {
    let cache = PersistentCache<String, Double>(storage: nil)
    cache["key"] = .infinity
    try await cache.sync()
    #expect(try await cache["key"] == .infinity)
  }

  @Test("Assigning to an optional cache that is nil does nothing")
  func nilCache() async throws {
    let cache: PersistentCache<UUID, String>? = nil
    let key = UUID()
    cache?[key] = "value"
    cache?[item: key] = .init("value", expiresIn: 60)
    #expect(try await cache?[key] == nil)
    #expect(try await cache?[item: key] == nil)
    let present: PersistentCache<UUID, String>? = PersistentCache(storage: nil)
    present?[key] = "value"
    #expect(try await present?[key] == "value")
  }

  @Test("Assignments reach the engine in order, and for each key only the last one")
  func order() async throws {
    let storage = HookedEngine()
    let written = Shared<[CacheKey]>([])
    storage.beforeChange { changes in written.withLock { $0 += changes.map(\.key) } }
    let cache = PersistentCache<Int, Int>(storage: storage)
    for number in 0..<5_000 { cache[number] = number }
    for number in 0..<5_000 { cache[number] = -number }
    try await cache.sync()
    let keys = written.withLock { $0 }.compactMap { Int($0.value.dropFirst("cache:0::".count)) }
    #expect(keys.firstIndex(of: 4_999) == 4_999)
    #expect(Array(keys.prefix(5_000)) == Array(0..<5_000))
    cache.clearMemoryCache()
    #expect(try await cache[4_321] == -4_321)
  }

  @Test("A released cache still writes its assignments", arguments: AnyEngine.all)
  func droppedCache(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    var cache: PersistentCache<Int, Int>? = PersistentCache(storage: storage)
    for number in 0..<1_000 { cache?[number] = number }
    cache = nil
    while try await storage.keyCount() < 1_000 { await Task.yield() }
  }

  @Test("A custom codec encodes and decodes")
  func codec() async throws {
    struct PrefixingCodec: Codec {
      func encode(_ value: some Encodable) throws -> Data {
        Data("!".utf8) + (try JSONEncoder().encode(value))
      }
      func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
        #expect(data.startIndex == 0 && data.first == UInt8(ascii: "!"))
        return try JSONDecoder().decode(type, from: data.dropFirst())
      }
    }
    let storage = MemoryStorageEngine()
    let cache = PersistentCache<Int, String>(storage: storage, codec: PrefixingCodec())
    try await cache.store("value", forKey: 1)
    cache.clearMemoryCache()
    #expect(try await cache[1] == "value")
    #expect(try await storage.readAllData()[0].suffix(8) == Data("!\"value\"".utf8))
  }

  @Test("The deinit of a value may use the cache", .timeLimit(.minutes(60)))
  func valuesThatUseTheCache() async throws {
    final class Guest: Codable, Sendable {
      static let cache = PersistentCache<Int, Guest>(storage: nil, memoryLimit: CacheLimit(entries: 2))
      deinit { Guest.cache.clearMemoryCache() }
    }
    for key in 0..<10 { Guest.cache[key] = Guest() }
    Guest.cache[9] = nil
    try await Guest.cache.removeAll()
  }
}
