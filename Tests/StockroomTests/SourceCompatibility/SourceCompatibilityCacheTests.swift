import Foundation
import Stockroom
import StockroomMemory
import TestFixtures
import Testing

private struct Post: Codable, Equatable {
  var id: UUID = UUID()
  var createdAt: Date = Date(timeIntervalSinceReferenceDate: 0)
  var body: String = ""
}

private final class Foo: Sendable {
  let cache: PersistentCache<UUID, String>?
  init(cache: PersistentCache<UUID, String>? = PersistentCache(namespace: "Foo")) {
    self.cache = cache
  }
}

@Suite("Source compatibility: caches") struct SourceCompatibilityCacheTests {
  @Test("Messages of a room", arguments: Place.names)
  func messages(_ name: String) async throws {
    let place = try Place(name)
    let customStorage = try await place.engine()
    let cache = PersistentCache<UUID, [Post]>(storage: customStorage, namespace: "com.example.app")
    let roomID = UUID()
    for isCached in [false, true] {
      if let cached = try await cache[roomID] {
        // show cached messages
        #expect(isCached)
        #expect(cached.map(\.body) == (0..<10).map(String.init))
      } else {
        // load them some expensive way
        #expect(!isCached)
        cache[roomID] = (0..<10).map({ Post(body: String($0)) })
      }
    }
    try await cache.sync()
    let afterwards = PersistentCache<UUID, [Post]>(storage: customStorage, namespace: "com.example.app")
    #expect(try await afterwards[roomID]?.count == 10)
  }

  @Test("Values, items that expire, and fetches compile and work", arguments: Place.names)
  func access(_ name: String) async throws {
    let place = try Place(name)
    let cache = PersistentCache<String, Int>(storage: try await place.engine())
    let key = "key"

    #expect(try await cache[key] == nil)
    cache[key] = 1
    let value = try await cache[key]
    #expect(value == 1)

    cache[item: key] = Item(2, expiresIn: 60 * 60)
    let item = try await cache[item: key]
    #expect(item?.value == 2)
    #expect(item?.expiresAt != nil)
    cache[item: key] = Item(3, expiresIn: -1)
    #expect(try await cache[key] == nil)

    #expect(try await cache.fetch(key, fallback: { 4 }) == 4)
    #expect(try await cache.fetch(key) { 5 } == 4)
  }

  @Test("Completion handlers")
  func callbacks() async throws {
    let cache = PersistentCache<String, Int>(storage: MemoryStorageEngine())
    let missing: Int? = try await withCheckedThrowingContinuation { continuation in
      cache.fetch("key", queue: .main) { value in
        continuation.resume(with: value)
      }
    }
    #expect(missing == nil)
    let loaded: Int = try await withCheckedThrowingContinuation { continuation in
      cache.fetch("key", queue: .main, fallback: { 6 }) { value in
        continuation.resume(with: value)
      }
    }
    #expect(loaded == 6)
  }

  @Test(
    "Caches with a namespace, without storage, the default cache, and an optional one compile", .ownThreads)
  func injection() async {
    await #expect(processExitsWith: .success) {
      let directory = FileManager.default.temporaryDirectory.appending(path: "stockroom-\(UUID().uuidString)")
      setenv("XDG_CACHE_HOME", directory.path(percentEncoded: false), 1)
      defer { try? FileManager.default.removeItem(at: directory) }
      let key = UUID()

      let custom = MemoryStorageEngine()
      let fooA = Foo(cache: PersistentCache(storage: custom))
      fooA.cache?[key] = "a"
      try await fooA.cache?.sync()
      try #require(try await custom.keyCount() == 1)

      let memory = Foo(cache: PersistentCache(storage: nil))
      memory.cache?[key] = "memory"
      try #require(try await memory.cache?[key] == "memory")

      let fooB = Foo(cache: nil)
      fooB.cache?[key] = "b"
      try #require(try await fooB.cache?[key] == nil)

      let usual = Foo()
      usual.cache?[key] = "usual"
      try await usual.cache?.sync()
      try #require(try await Foo().cache?[key] == "usual")

      // Caches that name no namespace have one for each pair of types.
      let rooms = PersistentCache<UUID, [Post]>()
      let names = PersistentCache<UUID, String>()
      rooms[key] = [Post(body: "1")]
      names[key] = "name"
      try await rooms.sync()
      try await names.sync()
      try #require(try await PersistentCache<UUID, [Post]>()[key]?.count == 1)
      try #require(try await PersistentCache<UUID, String>()[key] == "name")
      try #require(try await Foo().cache?[key] == "usual")
    }
  }
}
