import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

@MainActor @Suite("Modifying an item that may be absent", .timeLimit(.minutes(10))) struct ModifyingTests {
  private func store(_ engine: MemoryStorageEngine, _ hasTransactions: Bool) async throws -> Store<Note> {
    try await Store<Note>(storage: MaybeTransactional(base: engine, hasTransactions: hasTransactions))
  }

  @Test(
    "An item is inserted, changed and removed, and the closure gets what is stored", arguments: [true, false])
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

  @Test("What is only looked at is not written, and is no event", arguments: [true, false])
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

  @Test("One that throws or leaves another identifier changes nothing", arguments: [true, false])
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
    "Of many that remove an item one gets it, as it was last, and of many that insert one all get the same")
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
