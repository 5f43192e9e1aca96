import Foundation
import Stockroom
import Testing

/// An engine in an older style: an actor whose reads do not throw.
private actor UserDefinedEngine: StorageEngine {
  private var entries: [CacheKey: StorageEntry] = [:]

  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    let created = entries[key]?.createdAt ?? .now
    entries[key] = StorageEntry(key: key, data: data, createdAt: created, updatedAt: .now)
  }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, data) in dataAndKeys { try await write(data, key: key) }
  }

  func read(key: CacheKey) async -> Data? { entries[key]?.data }
  func read(keys: [CacheKey]) async -> [Data] { keys.compactMap { entries[$0]?.data } }
  func readDataAndKeys(keys: [CacheKey]) async -> [(key: CacheKey, data: Data)] {
    keys.compactMap { key in entries[key].map { (key, $0.data) } }
  }
  func readAllData() async -> [Data] { entries.values.map(\.data) }
  func readAllDataAndKeys() async -> [(key: CacheKey, data: Data)] {
    entries.values.map { ($0.key, $0.data) }
  }

  func remove(key: CacheKey) async throws { entries[key] = nil }
  func remove(keys: [CacheKey]) async throws { for key in keys { entries[key] = nil } }
  func removeAllData() async throws { entries = [:] }

  func keyExists(_ key: CacheKey) async -> Bool { entries[key] != nil }
  func keyCount() async -> Int { entries.count }
  func allKeys() async -> [CacheKey] { Array(entries.keys) }

  func createdAt(key: CacheKey) async -> Date? { entries[key]?.createdAt }
  func updatedAt(key: CacheKey) async -> Date? { entries[key]?.updatedAt }
}

@Suite("Source compatibility: engines") struct SourceCompatibilityEngineTests {
  @Test("An engine that is an actor and does not throw works behind everything")
  func actorEngine() async throws {
    let engine = UserDefinedEngine()
    let storage = ObjectStorage<Bookmark>(storage: engine)
    let bookmark = Bookmark(url: URL(filePath: "/"), title: "Root")
    try await storage.store(bookmark, forKey: CacheKey("root"))
    #expect(try await storage.object(forKey: CacheKey("root")) == bookmark)
    #expect(try await storage.keyCount() == 1)
    try await storage.removeAllObjects()

    let store = try await Store<Bookmark>(storage: engine, cacheIdentifier: \.title)
    try await store.insert(bookmark)
    #expect(await store.items == [bookmark])
    #expect(try await storage.allObjects() == [bookmark])
  }

  @Test("Objects are stored, found, counted, dated and removed by key", arguments: Place.names)
  func objects(_ name: String) async throws {
    let place = try Place(name)
    let storage = ObjectStorage<Bookmark>(storage: try await place.engine())
    let keys = (0..<3).map { CacheKey("\($0)") }
    let bookmarks = (0..<3).map { Bookmark(url: URL(filePath: "/\($0)"), title: "\($0)") }

    try await storage.store(bookmarks[0], forKey: keys[0])
    try await storage.store([(key: keys[1], object: bookmarks[1]), (key: keys[2], object: bookmarks[2])])
    #expect(try await storage.object(forKey: keys[0]) == bookmarks[0])
    #expect(try await storage.objects(forKeys: [keys[2], keys[0]]) == [bookmarks[2], bookmarks[0]])
    #expect(try await storage.objectsAndKeys(keys: [keys[1]]).map(\.object) == [bookmarks[1]])
    #expect(try await storage.allObjects().count == 3)
    #expect(try await storage.allObjectsAndKeys().count == 3)
    #expect(try await Set(storage.allKeys()) == Set(keys))
    #expect(try await storage.createdAt(forKey: keys[0]) != nil)
    #expect(try await storage.updatedAt(forKey: CacheKey("nobody")) == nil)
    try await storage.removeObject(forKey: keys[0])
    try await storage.removeObject(forKeys: [keys[1]])
    #expect(try await storage.keyCount() == 1)
    try await storage.removeAllObjects()
    #expect(try await storage.keyCount() == 0)
  }
}
