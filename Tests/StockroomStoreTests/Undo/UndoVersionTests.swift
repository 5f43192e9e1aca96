import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

@MainActor @Suite("Undo of a store's calls with versioned items") struct UndoVersionTests {
  private let engine = MemoryStorageEngine()

  @Test("An undo restores an older version unchanged, and rewriting older versions is not recorded")
  func older() async throws {
    try await ObjectStorage<FirstNote>(storage: engine).store(
      FirstNote(id: "a", text: "first"), forKey: key("a"))
    let bytes = try await engine.read(key: key("a"))
    let store = try await Store<FourthNote>(storage: engine)
    let items = store.items
    store.undoLimit = StoreUndoLimit(calls: 10)
    try await store.update("a") { $0.isDone = true }
    #expect(try await store.undo())
    #expect(try await engine.read(key: key("a")) == bytes && store.items == items)
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    #expect(try await engine.read(key: key("a")) != bytes && !store.canUndo)
  }

  @Test("A recorded call does not replace a newer version; undoing its removal restores it")
  func newer() async throws {
    let newer = FourthNote(id: "a", lines: ["fourth"])
    try await ObjectStorage<FourthNote>(storage: engine).store(newer, forKey: key("a"))
    let bytes = try await engine.read(key: key("a"))
    let store = try await Store<ThirdNote>(storage: engine)
    store.undoLimit = StoreUndoLimit(calls: 10)
    let error = await #expect(throws: StorageError.self) {
      try await store.insert(ThirdNote(id: "a", lines: []))
    }
    #expect(error?.code == .unsupported && !store.canUndo && store.unreadableEntries.count == 1)
    try await store.removeAll()
    #expect(try await engine.read(key: key("a")) == nil)
    try await store.undo()
    #expect(try await engine.read(key: key("a")) == bytes && store.unreadableEntries.count == 1)
  }

  @Test("An entry that the store has rewritten since can be redone")
  func redoOfRewritten() async throws {
    for id in ["a", "b"] {
      try await ObjectStorage<FirstNote>(storage: engine).store(
        FirstNote(id: id, text: "first"), forKey: key(id))
    }
    let store = try await Store<FourthNote>(storage: engine)
    store.undoLimit = StoreUndoLimit(calls: 10)
    try await store.update("a") { $0.isDone = true }
    try await store.update("a") { $0.title = "title" }
    let changed = store.items
    #expect(try await store.undo())
    #expect(try await store.undo())
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    #expect(Set(try await versions(in: engine).values) == ["4"])
    #expect(try await store.redo())
    #expect(try await store.redo())
    #expect(store.items == changed)
    #expect(try await store.undo())
    #expect(try await store.undo())
    #expect(store.items.map(\.isDone) == [false, false])
  }
}
