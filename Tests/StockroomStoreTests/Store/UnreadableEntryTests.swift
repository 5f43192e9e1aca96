import Foundation
import Observation
import StockroomCore
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

@MainActor @Suite("Entries of a store that cannot be decoded") struct UnreadableEntryTests {
  @Test("An entry that cannot be decoded hides no other, is reported, and is kept", arguments: AnyEngine.all)
  func undecodable(_ kind: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await kind.open(directory)
    try await Store<Note>(storage: engine).insert(Note.numbered(0..<5))
    let broken = CacheKey(verbatim: "note 2")
    let foreign = CacheKey(verbatim: "foreign")
    try await engine.write(Data("{".utf8), key: broken)
    // Another program's entry: an item, under a key other than its own.
    try await engine.write(JSONEncoder().encode(Note(id: "other")), key: foreign)

    let store = try await Store<Note>(storage: engine)
    #expect(store.items.map(\.id) == ["note 0", "note 1", "note 3", "note 4"])
    #expect(store.unreadableEntries.map(\.key) == [broken, foreign])
    #expect(store.unreadableEntries.allSatisfy { $0.error.code == .decodingFailed })
    #expect(store.unreadableEntries[0].error.description.contains("note 2"))
    // An update of the entry does not overwrite the item either.
    let error = await #expect(throws: StorageError.self) {
      try await store.update("foreign") { $0.text = "!" }
    }
    #expect(error?.code == .decodingFailed)
    #expect(try await engine.keyExists(CacheKey(verbatim: "other")) == false)
    try await store.insert(Note(id: "x"))
    try await store.remove(Note(id: "note 0"))
    #expect(try await engine.read(key: broken) == Data("{".utf8))
    #expect(store.unreadableEntries.count == 2)

    try await store.insert(Note(id: "note 2"))
    #expect(store.unreadableEntries.map(\.key) == [foreign])
    // At the position that it has in the engine, so that a restart does not move it.
    #expect(store.items.map(\.id) == ["note 1", "note 2", "note 3", "note 4", "x"])
    #expect(try await Store<Note>(storage: engine).items == store.items)
    try await store.removeAll()
    #expect(store.unreadableEntries.isEmpty)
    #expect(try await engine.keyCount() == 0)
    try await engine.close()
  }

  @Test("Unreadable entries keep their positions until they are replaced")
  func places() async throws {
    let engine = MemoryStorageEngine()
    func corrupted(_ ids: [String]) async throws -> Store<Note> {
      for id in ids { try await engine.write(Data("{".utf8), key: CacheKey(verbatim: id)) }
      return try await Store<Note>(storage: engine)
    }
    try await Store<Note>(storage: engine).insert(["a", "b", "c"].map { Note(id: $0) })
    var store = try await corrupted(["b"])
    try await store.remove(Note(id: "b"))
    #expect(store.unreadableEntries.isEmpty)
    try await store.insert(Note(id: "b"))
    #expect(store.items.map(\.id) == ["a", "c", "b"])
    #expect(try await agree(store, engine))

    store = try await corrupted(["a", "b", "c"])
    #expect(store.items.isEmpty)
    try await store.removeAll()
    try await store.insert(Note(id: "c"))
    try await store.insert(Note(id: "a"))
    #expect(store.items.map(\.id) == ["c", "a"])
    #expect(try await agree(store, engine))
  }

  @Test("Thousands of unreadable entries can be replaced at once, in any order")
  func migration() async throws {
    let engine = MemoryStorageEngine()
    let notes = Note.numbered(0..<5_000)
    try await engine.write(
      notes.enumerated().map { index, note in
        let data = index % 3 == 0 ? try JSONEncoder().encode(note) : Data("old".utf8)
        return (key: CacheKey(verbatim: note.id), data: data)
      })
    let store = try await Store<Note>(storage: engine)
    #expect(store.items.count == 1_667)
    try await store.remove(Array(store.items.prefix(100)))
    try await store.insert(notes.reversed() + [Note(id: "new")])
    #expect(store.items.count == 5_001)
    #expect(store.unreadableEntries.isEmpty)
    #expect(try await agree(store, engine))
  }

  @Test("Changes of items do not notify observers of unreadable entries")
  func unreadableObservation() async throws {
    let engine = MemoryStorageEngine()
    try await engine.write(Data("{".utf8), key: CacheKey(verbatim: "a"))
    let store = try await Store<Note>(storage: engine)
    let changes = Counter()
    withObservationTracking {
      _ = store.unreadableEntries
    } onChange: {
      changes.increment()
    }
    try await store.insert(Note(id: "b"))
    #expect(changes.count == 0)
    try await store.insert(Note(id: "a"))
    #expect(changes.count == 1)
  }
}
