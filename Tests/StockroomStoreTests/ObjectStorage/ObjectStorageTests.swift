import Foundation
import StockroomCore
import StockroomTestSupport
import StockroomStore
import TestFixtures
import Testing

@Suite("ObjectStorage")
struct ObjectStorageTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  private func storage(_ engine: AnyEngine) async throws -> ObjectStorage<Letter> {
    ObjectStorage(storage: try await engine.open(directory))
  }

  @Test("An object is read as it was stored, and an absent one is nil", arguments: AnyEngine.all)
  func oneObject(engine: AnyEngine) async throws {
    let notes = try await storage(engine)
    #expect(try await notes.object(forKey: key("a")) == nil)
    try await notes.store(.first, forKey: key("a"))
    #expect(try await notes.object(forKey: key("a")) == .first)
    try await notes.store(.second, forKey: key("a"))
    #expect(try await notes.object(forKey: key("a")) == .second)
    #expect(try await notes.keyCount() == 1)
  }

  @Test("Many objects are returned in the order of the request, including repeats", arguments: AnyEngine.all)
  func manyObjects(engine: AnyEngine) async throws {
    let notes = try await storage(engine)
    let stored = many(1_000)
    try await notes.store(stored)

    let request = [key("999"), key("absent"), key("7"), key("999")] + stored.map(\.key).reversed()
    let expected = [999, 7, 999] + (0..<1_000).reversed()
    #expect(try await notes.objects(forKeys: request).map(\.likes) == expected)
    let found = try await notes.objectsAndKeys(keys: request)
    #expect(found.map(\.object.likes) == expected)
    #expect(found.map(\.key.value) == expected.map(String.init))

    #expect(try await Set(notes.allObjects()) == Set(stored.map(\.object)))
    let all = try await notes.allObjectsAndKeys()
    #expect(all.count == 1_000)
    #expect(all.allSatisfy { $0.key.value == String($0.object.likes) })
  }

  @Test("For two objects with one key in a batch, the later one is stored", arguments: AnyEngine.all)
  func laterWins(engine: AnyEngine) async throws {
    let notes = try await storage(engine)
    try await notes.store([(key("a"), .first), (key("b"), .first), (key("a"), .second)])
    #expect(try await notes.objects(forKeys: [key("a"), key("b")]) == [.second, .first])
  }

  @Test("Storing, reading and removing zero objects does not throw", arguments: AnyEngine.all)
  func nothing(engine: AnyEngine) async throws {
    let notes = try await storage(engine)
    try await notes.store([])
    try await notes.removeObject(forKeys: [])
    try await notes.removeObject(forKey: key("absent"))
    try await notes.removeAllObjects()
    #expect(try await notes.objects(forKeys: []).isEmpty)
    #expect(try await notes.objectsAndKeys(keys: []).isEmpty)
    #expect(try await notes.allObjects().isEmpty)
    #expect(try await notes.allObjectsAndKeys().isEmpty)
    #expect(try await notes.allKeys().isEmpty)
    #expect(try await notes.keyCount() == 0)
    #expect(try await notes.createdAt(forKey: key("absent")) == nil)
    #expect(try await notes.updatedAt(forKey: key("absent")) == nil)
  }

  @Test("Objects can be removed one at a time, several at once, and all at once", arguments: AnyEngine.all)
  func removal(engine: AnyEngine) async throws {
    let notes = try await storage(engine)
    try await notes.store(many(10))
    try await notes.removeObject(forKey: key("0"))
    #expect(try await notes.object(forKey: key("0")) == nil)
    try await notes.removeObject(forKeys: [key("1"), key("absent"), key("2"), key("1")])
    #expect(try await Set(notes.allKeys().map(\.value)) == Set((3..<10).map(String.init)))
    #expect(try await notes.keyCount() == 7)
    try await notes.removeAllObjects()
    #expect(try await notes.keyCount() == 0)
    try await notes.store(.first, forKey: key("0"))
    #expect(try await notes.allObjects() == [.first])
  }

  @Test(
    "Storing an object again keeps its creation time and advances its update time", arguments: AnyEngine.all)
  func timestamps(engine: AnyEngine) async throws {
    let notes = try await storage(engine)
    let before = Date()
    try await notes.store(.first, forKey: key("a"))
    let created = try #require(try await notes.createdAt(forKey: key("a")))
    let updated = try #require(try await notes.updatedAt(forKey: key("a")))
    #expect((before.addingTimeInterval(-0.002)...Date().addingTimeInterval(0.002)).contains(created))
    var again = updated
    while again == updated {
      try await notes.store(.second, forKey: key("a"))
      again = try #require(try await notes.updatedAt(forKey: key("a")))
    }
    #expect(try await notes.createdAt(forKey: key("a")) == created)
    #expect(again > updated)
  }

  @Test("Objects persist after the engine is closed and reopened", arguments: AnyEngine.persistent)
  func reopening(engine: AnyEngine) async throws {
    let first = try await engine.open(directory)
    try await ObjectStorage<Letter>(storage: first).store(many(100))
    try await first.close()
    #expect(try await Set(storage(engine).allObjects()) == Set(many(100).map(\.object)))
  }

  @Test("The stored bytes are exactly the output of the codec", arguments: AnyEngine.all)
  func codecs(engine: AnyEngine) async throws {
    let base = try await engine.open(directory)
    let notes = ObjectStorage<Letter>(storage: base, codec: PropertyListCodec())
    try await notes.store(.first, forKey: key("a"))
    try await notes.store([(key("b"), .second)])
    let data = try #require(try await base.read(key: key("a")))
    #expect(try PropertyListDecoder().decode(Letter.self, from: data) == .first)
    #expect(try await notes.objects(forKeys: [key("b"), key("a")]) == [.second, .first])

    try await ObjectStorage<String>(storage: base).store("hello", forKey: key("c"))
    #expect(try await base.read(key: key("c")) == Data("\"hello\"".utf8))
  }

  @Test("Concurrent tasks can store, read and remove", arguments: AnyEngine.all)
  func concurrently(engine: AnyEngine) async throws {
    let notes = try await storage(engine)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for task in 0..<20 {
        group.addTask {
          let own = (0..<70).map { (key: key("\(task)/\($0)"), object: Letter(text: "\(task)", likes: $0)) }
          try await notes.store(own)
          #expect(try await notes.objects(forKeys: own.map(\.key)) == own.map(\.object))
          try await notes.removeObject(forKeys: own.dropFirst().map(\.key))
          #expect(try await notes.object(forKey: own[0].key) == own[0].object)
        }
      }
      try await group.waitForAll()
    }
    #expect(try await Set(notes.allKeys().map(\.value)) == Set((0..<20).map { "\($0)/0" }))
  }

  @Test("Many keys are one request to the engine")
  func oneRequest() async throws {
    let engine = FailingStorageEngine(try await AnyEngine.all[0].open(directory))
    let notes = ObjectStorage<Letter>(storage: engine)
    let keys = many(500).map(\.key)
    try await notes.store(many(500))
    _ = try await notes.objects(forKeys: keys)
    _ = try await notes.objectsAndKeys(keys: keys)
    _ = try await notes.allObjects()
    _ = try await notes.allObjectsAndKeys()
    try await notes.removeObject(forKeys: keys)
    try await notes.removeAllObjects()

    #expect(
      engine.calls.map(\.description) == [
        "write(_:) of 500", "readDataAndKeys(keys:) of 500", "readDataAndKeys(keys:) of 500",
        "readAllDataAndKeys()", "readAllDataAndKeys()", "remove(keys:) of 500", "removeAllData()",
      ])
  }
}

func key(_ text: String) -> CacheKey { CacheKey(verbatim: text) }

func many(_ count: Int) -> [(key: CacheKey, object: Letter)] {
  (0..<count).map { (key("\($0)"), Letter(text: "Letter \($0)", likes: $0)) }
}

struct Letter: StorableItem, Hashable {
  var text: String
  var likes: Int

  static let first = Letter(text: "Zoë\u{0}🧳", likes: .min)
  static let second = Letter(text: "", likes: .max)
}
