import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

@MainActor @Suite("Undo of calls whose entries others have changed, or that the store does not know")
struct UndoOthersTests {
  @Test(
    "Undo does not overwrite later changes of others: the call can no longer be undone, an earlier one can")
  func conflict() async throws {
    let engine = MemoryStorageEngine()
    let store = try await recordingStore(engine, "a", "b", "c")
    let other = try await Store<Note>(storage: engine)
    try await store.insert(Note(id: "c", text: "second"))
    try await store.insert(Note(id: "a", text: "second")).remove(Note(id: "b")).run()
    try await other.insert(Note(id: "b", text: "other"))
    let error = await #expect(throws: StorageError.self) { try await store.undo() }
    #expect(error?.code == .conflict)
    #expect(try await notes(in: engine).map(\.text) == ["second", "second", "other"])
    #expect(store.canUndo && !store.canRedo)
    #expect(try await store.undo())
    #expect(try await notes(in: engine).map(\.text) == ["second", "first", "other"])
    try await other.remove(Note(id: "c"))
    await #expect(throws: StorageError.self) { try await store.redo() }
    #expect(!store.canRedo && !store.canUndo)
  }

  @Test("Changes of others to other items are kept")
  func others() async throws {
    let engine = MemoryStorageEngine()
    let store = try await recordingStore(engine, "a", "b")
    try await store.removeAll()
    try await Store<Note>(storage: engine).insert(Note(id: "c", text: "other"))
    #expect(try await store.undo())
    #expect(try await notes(in: engine).map(\.id) == ["c", "a", "b"])
  }

  @Test("An undo restores the engine's entry even if the store had not read it")
  func unseen() async throws {
    let engine = MemoryStorageEngine()
    let store = try await recordingStore(engine, "a")
    let written = Note(id: "a", text: "unseen")
    try await engine.write(try JSONEncoder().encode(written), key: CacheKey(verbatim: "a"))
    try await store.insert(Note(id: "a", text: "second"))
    try await store.undo()
    #expect(try await notes(in: engine) == [written])
    #expect(store.items == [written])
  }

  @Test("Entries that cannot be decoded are restored too", arguments: AnyEngine.all)
  func unreadable(_ kind: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await kind.open(directory)
    for id in ["a", "b", "c"] {
      let data = id == "b" ? Data("?".utf8) : try JSONEncoder().encode(Note(id: id))
      try await engine.write(data, key: CacheKey(verbatim: id))
    }
    let store = try await Store<Note>(storage: engine)
    store.undoLimit = StoreUndoLimit(calls: 10)
    try await store.insert(Note(id: "b"))
    try await store.removeAll()
    for _ in 0..<2 {
      try await store.undo()
      #expect(store.items.map(\.id) == ["a", "b", "c"] && store.unreadableEntries.isEmpty)
      try await store.undo()
      #expect(store.items.map(\.id) == ["a", "c"])
      #expect(store.unreadableEntries.map(\.key) == [CacheKey(verbatim: "b")])
      #expect(try await engine.read(key: CacheKey(verbatim: "b")) == Data("?".utf8))
      try await store.redo()
      try await store.redo()
      #expect(store.items.isEmpty && store.unreadableEntries.isEmpty)
    }
    try await engine.close()
  }

  @Test("Entries that the store did not know are inserted again in the order of their keys")
  func unknownEntries() async throws {
    let engine = MinimalEngine()
    let store = try await recordingStore(engine, "a")
    let unknown = (10..<30).map { Note(id: "b \($0)") }
    for note in unknown.shuffled() {
      try await engine.write(JSONEncoder().encode(note), key: CacheKey(verbatim: note.id))
    }
    try await store.removeAll()
    #expect(try await engine.allKeys().isEmpty)
    try await store.undo()
    #expect(store.items == [Note(id: "a", text: "first")] + unknown)
  }

  @Test("A restored unreadable entry does not share the position of an item that others insert")
  func sharedPlace() async throws {
    let base = MemoryStorageEngine()
    try await base.write(Data("junk".utf8), key: CacheKey(verbatim: "bad"))
    let engine = FailingStorageEngine(base)
    let store = try await recordingStore(engine, "a")
    try await store.remove(Note(id: "bad"))
    engine.hold()
    async let undone = store.undo()
    try await engine.waitForHeldCalls()
    // Written before the entry, and read by the store after it.
    try await base.write(JSONEncoder().encode(Note(id: "other")), key: CacheKey(verbatim: "other"))
    engine.release()
    #expect(try await undone)
    try await wait { store.contains(id: "other") }
    try await store.insert(Note(id: "bad"))
    #expect(store["other"]?.id == "other" && store["bad"]?.id == "bad")
    #expect(try await agree(store, engine))
  }
}
