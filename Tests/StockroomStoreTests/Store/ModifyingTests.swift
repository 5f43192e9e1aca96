import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

/// A link whose base URL is encoded by a property list, but not by JSON.
private struct Bookmark: Codable, Sendable, Identifiable {
  var id: String
  var link: URL
}

/// An item that only ``ContextCodec`` can encode.
private struct Contextual: Codable, Sendable, Identifiable {
  struct NoContext: Error {}

  var id: String
  var text: String

  func encode(to encoder: any Encoder) throws {
    if encoder.userInfo.isEmpty { throw NoContext() }
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(id, forKey: .id)
    try container.encode(text, forKey: .text)
  }
}

private struct ContextCodec: Codec {
  func encode(_ value: some Encodable) throws -> Data {
    let encoder = JSONEncoder()
    if let key = CodingUserInfoKey(rawValue: "context") { encoder.userInfo[key] = true }
    return try encoder.encode(value)
  }

  func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
    try JSONDecoder().decode(type, from: data)
  }
}

@MainActor @Suite("Modifying an item that may be absent", .timeLimit(.minutes(60))) struct ModifyingTests {
  private func store(_ engine: MemoryStorageEngine, _ hasTransactions: Bool) async throws -> Store<Note> {
    try await Store<Note>(storage: MaybeTransactional(base: engine, hasTransactions: hasTransactions))
  }

  @Test(
    "An item is inserted, changed and removed, and the closure receives the stored item",
    arguments: [true, false])
  func modifies(hasTransactions: Bool) async throws {
    let engine = MemoryStorageEngine()
    let store = try await store(engine, hasTransactions)
    let inserted = try await store.modify("a") { note in
      if note == nil { note = Note(id: "a") }
      return note
    }
    #expect(inserted == Note(id: "a") && store.items == [Note(id: "a")])
    let before = try await store.modify("a") { note in
      defer { note?.text = "new" }
      return note?.text
    }
    #expect(before == "" && store.items == [Note(id: "a", text: "new")])
    let removed = try await store.modify("a") { note in note.take() }
    #expect(removed == Note(id: "a", text: "new") && store.items.isEmpty)
    #expect(try await store.modify("a") { note in note.take() } == nil)
    #expect(try await engine.keyCount() == 0)
  }

  @Test(
    "An item that the closure does not change is not written, and causes no event", arguments: [true, false])
  func looks(hasTransactions: Bool) async throws {
    let engine = MemoryStorageEngine()
    let store = try await store(engine, hasTransactions)
    try await store.insert(Note(id: "a"))
    let written = try await engine.updatedAt(key: key("a"))
    var events = store.events.makeAsyncIterator()
    #expect(await events.next()?.operation == .loaded)
    #expect(try await store.modify("a") { note in note } == Note(id: "a"))
    #expect(try await store.modify("b") { note in note } == nil)
    try await store.insert(Note(id: "c"))
    #expect(await events.next()?.items == [Note(id: "c")])
    #expect(try await engine.updatedAt(key: key("a")) == written)
  }

  @Test("A change that affects the codec's bytes but not JSON is written")
  func changesOutsideOfJSON() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Bookmark>(storage: engine, codec: PropertyListCodec())
    let site = try #require(URL(string: "https://a.example/"))
    let link = try #require(URL(string: "page", relativeTo: site))
    let absolute = link.absoluteURL
    try await store.insert(Bookmark(id: "a", link: link))
    try await store.modify("a") { $0?.link = absolute }
    let stored = try #require(try await engine.read(key: key("a")))
    #expect(try PropertyListCodec().decode(Bookmark.self, from: stored).link == absolute)
    #expect(store.items.map(\.link) == [absolute])
  }

  @Test("An item that only its own codec can encode can be changed")
  func encodedByOneCodec() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Contextual>(storage: engine, codec: ContextCodec())
    try await store.insert(Contextual(id: "a", text: "old"))
    try await store.modify("a") { $0?.text = "new" }
    #expect(store.items.map(\.text) == ["new"])
    let stored = try #require(try await engine.read(key: key("a")))
    #expect(try ContextCodec().decode(Contextual.self, from: stored).text == "new")
  }

  @Test("A closure that throws or changes the identifier changes nothing", arguments: [true, false])
  func refused(hasTransactions: Bool) async throws {
    struct Refusal: Error {}
    let engine = MemoryStorageEngine()
    let store = try await store(engine, hasTransactions)
    try await store.insert(Note(id: "a"))
    await #expect(throws: Refusal.self) {
      try await store.modify("a") { note in
        note = nil
        throw Refusal()
      }
    }
    for identifier in ["a", "c"] {
      let error = await #expect(throws: StorageError.self) {
        try await store.modify(identifier) { $0 = Note(id: "b") }
      }
      #expect(error?.code == .unsupported)
    }
    #expect(store.items == [Note(id: "a")])
    #expect(try await agree(store, engine))
  }

  @Test(
    "Of concurrent removals only one receives the item, and concurrent inserts all receive the same item")
  func concurrently() async throws {
    let engine = MemoryStorageEngine()
    let stores = [try await Store<Note>(storage: engine), try await Store<Note>(storage: engine)]
    let inserted: [Note] = try await withThrowingTaskGroup(of: Note.self) { group in
      for number in 0..<10 {
        group.addTask {
          try await stores[number % 2].modify("a") { note in
            let present = note ?? Note(id: "a", text: "\(number)")
            note = present
            return present
          }
        }
      }
      var all: [Note] = []
      for try await note in group { all.append(note) }
      return all
    }
    #expect(Set(inserted.map(\.text)).count == 1)
    let removed: [Note?] = try await withThrowingTaskGroup(of: Note?.self) { group in
      for number in 0..<10 {
        group.addTask { try await stores[number % 2].modify("a") { note in note.take() } }
      }
      var all: [Note?] = []
      for try await note in group { all.append(note) }
      return all
    }
    #expect(removed.compactMap(\.self) == [inserted[0]])
    #expect(try await engine.keyCount() == 0)
  }

  @Test("A modification can be undone and redone")
  func undone() async throws {
    let engine = MemoryStorageEngine()
    let store = try await store(engine, true)
    store.undoLimit = StoreUndoLimit(calls: 10)
    try await store.insert(Note(id: "a"))
    try await store.modify("a") { $0 = nil }
    try await store.undo()
    #expect(store.items == [Note(id: "a")])
    try await store.redo()
    #expect(store.items.isEmpty)
    #expect(try await agree(store, engine))
  }
}
