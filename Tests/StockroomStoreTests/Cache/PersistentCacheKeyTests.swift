import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

@Suite("PersistentCache: keys and namespaces")
struct PersistentCacheKeyTests {
  /// Assigns a number to each key and expects to read it back, from memory and from storage.
  private func expectDistinct<Key>(_ keys: [Key], in storage: any StorageEngine) async throws
  where Key: Hashable & Encodable & Sendable {
    let cache = PersistentCache<Key, Int>(storage: storage, namespace: "\(Key.self)")
    for (number, key) in keys.enumerated() { cache[key] = number }
    for (number, key) in keys.enumerated() { #expect(try await cache[key] == number, "\(key)") }
    try await cache.sync()
    cache.clearMemoryCache()
    for (number, key) in keys.enumerated() { #expect(try await cache[key] == number, "\(key)") }
  }

  @Test(
    "Texts are compared as keys byte for byte, whatever their length and content", arguments: AnyEngine.all)
  func texts(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let long = String(repeating: "x", count: 10_000)
    try await expectDistinct(
      [
        "", " ", "=", "#", "a", "A", "a ", "\0", "\u{301}", "\u{E9}", "e\u{301}", "../a", "/", "%2F", "1",
        "\"1\"",
        "👩‍👩‍👧", long, long + "y", "y" + long, String(repeating: "e\u{301}", count: 5_000),
        String(repeating: "\u{E9}", count: 5_000), String(repeating: "z", count: 500),
        String(repeating: "z", count: 501), String(repeating: "z", count: 502),
        String(repeating: "z", count: 503),
      ], in: try await engine.open(directory))
  }

  @Test("Keys of every length around the maximum work")
  func lengths() async throws {
    let keys = (0...600).map { String(repeating: "x", count: $0) }
    try await expectDistinct(keys, in: MemoryStorageEngine())
    // The same with two-byte characters.
    try await expectDistinct(keys.map { $0.replacing("x", with: "é") }, in: MemoryStorageEngine())
  }

  struct Place: Hashable, Codable, Sendable {
    var x: Int
    var y: Int
    var tags: [String: String] = [:]
  }

  enum Color: String, Codable, Sendable { case red, green }

  @Test("Numbers, identifiers, URLs, dates, enumerations and custom types can be keys")
  func kinds() async throws {
    let storage = MemoryStorageEngine()
    try await expectDistinct([0, 1, -1, 10, .min, .max], in: storage)
    try await expectDistinct([UInt64.min, .max, 1], in: storage)
    try await expectDistinct([UUID(), UUID(), UUID()], in: storage)
    try await expectDistinct([0.1, 0.1 + .ulpOfOne, 1, 1e300], in: storage)
    try await expectDistinct([true, false], in: storage)
    try await expectDistinct([Color.red, .green], in: storage)
    try await expectDistinct(
      [Date(timeIntervalSince1970: 0), Date(timeIntervalSince1970: 0.001)], in: storage)
    try await expectDistinct([nil, 0, 1] as [Int?], in: storage)
    try await expectDistinct([nil, "", "null"] as [String?], in: storage)
    try await expectDistinct([[1, 2], [12], []], in: storage)
    try await expectDistinct([Data(), Data([0]), Data([0, 0])], in: storage)
    try await expectDistinct(
      [Place(x: 1, y: 2), Place(x: 2, y: 1), Place(x: 1, y: 2, tags: ["a": "b"])], in: storage)
    let base = try #require(URL(string: "https://example.com/a/"))
    try await expectDistinct(
      [base, base.appending(path: "b"), try #require(URL(string: "b", relativeTo: base))], in: storage)
  }

  @Test("A key that contains a dictionary is the same key whatever the dictionary's order")
  func canonical() async throws {
    let cache = PersistentCache<Place, Int>(storage: nil)
    let names = (0..<50).map { "\($0)" }
    var forwards = Place(x: 0, y: 0)
    for name in names { forwards.tags[name] = name }
    var backwards = Place(x: 0, y: 0, tags: Dictionary(minimumCapacity: 1_000))
    for name in names.reversed() { backwards.tags[name] = name }
    cache[forwards] = 1
    #expect(try await cache[backwards] == 1)
  }

  @Test("A key that cannot be encoded throws from a read, and from the next sync after an assignment")
  func unencodableKey() async throws {
    let cache = PersistentCache<Double, Int>(storage: nil)
    #expect(await code { try await cache[.nan] } == .encodingFailed)
    #expect(await code { try await cache.store(1, forKey: .infinity) } == .encodingFailed)
    #expect(await code { try await cache.fetch(.nan) { 1 } } == .encodingFailed)
    cache[.nan] = 1
    #expect(await code { try await cache.sync() } == .encodingFailed)
    try await cache.sync()
  }

  static let namespaces: [String] = {
    let long = String(repeating: "n", count: 10_000)
    let middling = (225...260).map { String(repeating: "m", count: $0) }
    return [
      "", "a", "ab", "abc", "1:a", ":", "1", "1:", "a:", "=", "\u{E9}", "e\u{301}", "A", "\0", "a\0", "../",
      "0::",
    ]
      + middling + [long, long + "n", "o" + long]
  }()

  @Test("Namespaces never collide", arguments: AnyEngine.all)
  func namespaces(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    let keys = ["", "a", "c", "bc", ":a", "abc", String(repeating: "k", count: 1_000)]
    let caches = Self.namespaces.map { PersistentCache<String, [String]>(storage: storage, namespace: $0) }
    for (cache, namespace) in zip(caches, Self.namespaces) {
      for key in keys { cache[key] = [namespace, key] }
      try await cache.sync()
      cache.clearMemoryCache()
    }
    #expect(try await storage.keyCount() == keys.count * Self.namespaces.count)
    for (cache, namespace) in zip(caches, Self.namespaces) {
      for key in keys {
        let value = try await cache[key]
        #expect(value.map { $0.map { Array($0.utf8) } } == [Array(namespace.utf8), Array(key.utf8)])
      }
    }
  }

  @Test("removeAll removes only the entries of its namespace", arguments: AnyEngine.all)
  func removeAll(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    let foreign = ["foreign", "cache", "cache:", "cache:1", "cache:2:a:=key", "cache#", "=key", "a"]
    for key in foreign { try await storage.write(Data(key.utf8), key: CacheKey(verbatim: key)) }
    let caches = Self.namespaces.map { PersistentCache<Int, Int>(storage: storage, namespace: $0) }
    for cache in caches { for key in 0..<5 { cache[key] = key } }
    for cache in caches { try await cache.sync() }

    for (index, cache) in caches.enumerated() {
      try await cache.removeAll()
      #expect(try await cache[3] == nil)
      #expect(try await storage.keyCount() == foreign.count + (caches.count - index - 1) * 5)
    }
    for cache in caches {
      cache.clearMemoryCache()
      #expect(try await cache[4] == nil)
    }
    for key in foreign { #expect(try await storage.read(key: CacheKey(verbatim: key)) == Data(key.utf8)) }
  }

  @Test(
    "removeAll reads in pages, even on an engine with only the required methods", arguments: [true, false])
  func removeMany(isMinimal: Bool) async throws {
    let storage: any StorageEngine = isMinimal ? MinimalEngine() : MemoryStorageEngine()
    try await storage.write(Data(), key: CacheKey(verbatim: "foreign"))
    let cache = PersistentCache<Int, Int>(storage: storage, namespace: "n")
    for count in [99, 100, 101, 1_234] {
      for key in 0..<count { cache[key] = key }
      try await cache.removeAll()
      #expect(try await storage.keyCount() == 1)
    }
    try await cache.removeAll()
  }

  @Test("An entry of another key with the same hash is a miss, never the wrong value")
  func hashCollision() async throws {
    let storage = MemoryStorageEngine()
    let (first, second) = (String(repeating: "1", count: 600), String(repeating: "2", count: 600))
    let cache = PersistentCache<String, String>(storage: storage)
    try await cache.store("first", forKey: first)
    let firstKey = try await storage.allKeys()[0]
    try await cache.store("second", forKey: second)
    let secondKey = try #require(try await storage.allKeys().first { $0 != firstKey })
    #expect(firstKey.value.utf8.count < 100)

    // The contents of the engine if both hashes were equal.
    try await storage.write(try #require(try await storage.read(key: secondKey)), key: firstKey)
    cache.clearMemoryCache()
    #expect(try await cache[first] == nil)
    #expect(try await cache[second] == "second")
    try await cache.store("first again", forKey: first)
    cache.clearMemoryCache()
    #expect(try await cache[first] == "first again")
  }

  @Test("removeAll keeps the entries of another namespace with the same hash")
  func namespaceHashCollision() async throws {
    let storage = MemoryStorageEngine()
    let long = String(repeating: "n", count: 1_000)
    let (mine, other) = (
      PersistentCache<Int, Int>(storage: storage, namespace: long),
      PersistentCache<Int, Int>(storage: storage, namespace: long + "2")
    )
    try await other.store(1, forKey: 1)
    let otherKey = try await storage.allKeys()[0]
    try await mine.store(2, forKey: 2)
    let myKey = try #require(try await storage.allKeys().first { $0 != otherKey })
    let collidingKey = CacheKey(verbatim: String(myKey.value.dropLast()) + "1")
    try await storage.write(try #require(try await storage.read(key: otherKey)), key: collidingKey)
    #expect(try await mine[1] == nil)
    try await mine.removeAll()
    #expect(try await storage.keysExist([myKey, collidingKey]) == [collidingKey])
  }
}
