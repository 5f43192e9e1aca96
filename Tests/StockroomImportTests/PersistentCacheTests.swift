import Foundation
import StockroomCore
import StockroomImport
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

struct PersistentCacheTests {
  /// What PersistentCacheKit stores, encoded by a plain `PropertyListEncoder`.
  private struct StoredItem<Value: Codable>: Codable {
    var expiration: Date?
    var value: Value
  }

  let place: TemporaryDirectory
  let database: LegacyDatabase

  init() throws {
    place = try TemporaryDirectory()
    database = try LegacyDatabase(.persistentCache, in: place.url)
  }

  private func insert(_ key: String, _ value: some Codable, expiration: Date? = nil) throws {
    let data = try PropertyListEncoder().encode(StoredItem(expiration: expiration, value: value))
    try database.execute(
      "INSERT OR REPLACE INTO cache_storage (key, data, createdAt) VALUES (?, ?, ?)", .text(key), .blob(data),
      .number(1_600_000_000.25))
  }

  @Test(
    "A cache returns what the one before it stored, with its expiry, and leaves out what has expired or is another cache's"
  )
  func values() async throws {
    let (first, second, expired, present) = (UUID(), UUID(), UUID(), UUID())
    let later = Date(timeIntervalSinceReferenceDate: 4_000_000_000)
    try insert("app\(first)", Note.all)
    try insert("app\(second)", Array(Note.all[1...]), expiration: later)
    try insert("app\(expired)", Note.all, expiration: Date(timeIntervalSinceReferenceDate: 1))
    try insert("app\(present)", Note.all)
    try insert("app not a UUID", 7)
    try insert("other\(first)", "text")
    try database.execute("INSERT INTO cache_storage VALUES (?, NULL, 1600000000)", .text("app\(UUID())"))
    database.close()

    let engine = MemoryStorageEngine()
    let cache = PersistentCache<UUID, [Note]>(storage: engine, namespace: "app")
    try await cache.store([], forKey: present)
    let report = try await PersistentCacheSource(at: place.url).import(into: cache, namespace: "app") {
      UUID(uuidString: $0)
    }
    #expect(report.imported == 2)
    #expect(report.alreadyPresent == 1)
    #expect(report.omissions.count == 3)

    let reopened = PersistentCache<UUID, [Note]>(storage: engine, namespace: "app")
    #expect(try await reopened[first] == Note.all)
    #expect(try await reopened[item: second] == CacheItem(Array(Note.all[1...]), expiresAt: later))
    #expect(try await reopened[item: expired] == nil)
    #expect(try await reopened[present] == [])
  }

  @Test("What the cache stores during an import is kept; what has expired there is replaced")
  func meanwhile() async throws {
    let (busy, expired) = (UUID(), UUID())
    try insert("\(busy)", "old")
    try insert("\(expired)", "old")
    database.close()

    let engine = FailingStorageEngine(MemoryStorageEngine())
    let before = PersistentCache<UUID, String>(storage: engine)
    before.assign(
      item: CacheItem("expired", expiresAt: Date(timeIntervalSinceReferenceDate: 1)), forKey: expired)
    try await before.sync()

    let cache = PersistentCache<UUID, String>(storage: engine)
    let source = PersistentCacheSource(at: place.url)
    engine.hold { $0.method == .read }
    async let report = source.import(into: cache) { UUID(uuidString: $0) }
    try await engine.waitForHeldCalls()
    // Only the cache's memory has the value, so the read in progress does not return it.
    engine.failEveryCall { $0.isWrite }
    cache.assign("new", forKey: busy)
    await #expect(throws: StorageError.self) { try await cache.sync() }
    engine.clearFaults()
    engine.release()
    #expect(try await report.imported == 1)
    #expect(try await cache[busy] == "new")
    #expect(try await cache[expired] == "old")
  }

  @Test("What has expired by the clock of the cache is left out, whatever the time is")
  func clock() async throws {
    let (past, future) = (
      Date(timeIntervalSinceReferenceDate: 1_000), Date(timeIntervalSinceReferenceDate: 4_000_000_000)
    )
    try insert("early", "value", expiration: past)
    try insert("late", "value", expiration: future)
    database.close()
    for (now, imported) in [(past - 1, 2), (past, 1), (future, 0)] {
      let cache = PersistentCache<String, String>(storage: MemoryStorageEngine(), now: { now })
      let report = try await PersistentCacheSource(at: place.url).import(into: cache) { $0 }
      #expect(report.imported == imported && report.omissions.count == 2 - imported)
    }
  }

  @Test("A value of another type is refused with its key")
  func otherType() async throws {
    try insert("key", 7)
    database.close()
    let cache = PersistentCache<String, [Note]>(storage: nil)
    let error = await #expect(throws: StorageError.self) {
      try await PersistentCacheSource(at: place.url).import(into: cache) { $0 }
    }
    #expect(error?.code == .decodingFailed)
    #expect(error?.description.contains("key") == true)
  }
}
