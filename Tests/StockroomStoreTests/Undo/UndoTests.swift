import Foundation
import Observation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

@MainActor @Suite("Undo of a store's calls") struct UndoTests {
  @Test("Each kind of call can be undone and redone, in the engine too", arguments: AnyEngine.all)
  func kinds(_ kind: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await kind.open(directory)
    let store = try await recordingStore(engine, "a", "b", "c")
    let before = store.items
    let calls: [(after: [String], undone: [String], make: () async throws -> Void)] = [
      (["a", "b", "c"], ["a", "b", "c"], { try await store.insert(Note(id: "b", text: "second")) }),
      (["a", "b", "c"], ["a", "b", "c"], { try await store.update("a") { $0.text = "second" } }),
      (
        ["a", "b", "c", "e", "d"], ["a", "b", "c"],
        { try await store.insert([Note(id: "e"), Note(id: "d")]) }
      ),
      (["a", "b"], ["a", "b", "c"], { try await store.remove(Note(id: "c")) }),
      ([], ["a", "b", "c"], { try await store.removeAll() }),
      (
        ["c", "d"], ["a", "b", "c"],
        { try await store.removeAll().insert([Note(id: "c"), Note(id: "d")]).run() }
      ),
      (
        ["a", "b", "d"], ["a", "b", "c"],
        { try await store.insert(Note(id: "a", text: "x")).remove(Note(id: "c")).insert(Note(id: "d")).run() }
      ),
    ]
    for call in calls {
      try await call.make()
      let after = store.items
      #expect(after.map(\.id) == call.after && store.canUndo && !store.canRedo)
      #expect(try await store.undo())
      #expect(store.items == before && store.canRedo)
      #expect(try await agree(store, engine))
      #expect(try await store.redo())
      #expect(store.items == after)
      #expect(try await agree(store, engine))
      #expect(try await store.undo())
      #expect(store.items == before)
    }
    #expect(try await store.undo() == false)
    try await engine.close()
  }

  @Test("Restored items are inserted at the end, in their former order")
  func places() async throws {
    let engine = MemoryStorageEngine()
    let store = try await recordingStore(engine, "a", "b", "c", "d")
    try await store.remove([Note(id: "c"), Note(id: "a")])
    try await store.undo()
    #expect(store.items.map(\.id) == ["b", "d", "a", "c"])
    #expect(try await agree(store, engine))
    try await store.redo()
    #expect(store.items.map(\.id) == ["b", "d"])
  }

  @Test("Any sequence of calls can be undone one by one, and redone", arguments: AnyEngine.all)
  func model(_ kind: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await kind.open(directory)
    let store = try await recordingStore(engine, "0", "1", "2")
    func contents() -> [String: String] {
      Dictionary(uniqueKeysWithValues: store.items.map { ($0.id, $0.text) })
    }
    for round in 0..<4 {
      var states = [contents()]
      for step in 0..<12 {
        func some() -> [Note] {
          (0..<Int.random(in: 1...3)).map { _ in
            Note(id: "\(Int.random(in: 0..<6))", text: "\(round) \(step)")
          }
        }
        switch Int.random(in: 0..<7) {
        case 0: try await store.removeAll()
        case 1: try await store.removeAll().insert(some()).remove(some()).run()
        case 2: try await store.remove(some()).insert(some()).insert(some()).run()
        case 3: try await store.remove(some())
        case 4: try await store.update("\(Int.random(in: 0..<6))") { $0.text += "!" }
        default: try await store.insert(some())
        }
        // A call that changed nothing is not recorded.
        if contents() != states.last { states.append(contents()) }
      }
      var later: [[String: String]] = []
      while try await store.undo() {
        if contents() == states.last { continue }
        later.append(states.removeLast())
        try #require(contents() == states.last)
      }
      #expect(try await agree(store, engine))
      while try await store.redo() {
        if contents() == states.last { continue }
        try #require(contents() == later.popLast())
        states.append(contents())
      }
      #expect(later.isEmpty)
      #expect(try await agree(store, engine))
      store.undoLimit = .none
      store.undoLimit = StoreUndoLimit(calls: 100)
    }
    try await engine.close()
  }

  @Test("A failed undo changes nothing and can be retried")
  func failure() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let store = try await recordingStore(engine, "a", "b")
    try await store.removeAll()
    engine.failCall(with: StorageError(.unavailable, "away")) { $0.method == .withTransaction }
    let error = await #expect(throws: StorageError.self) { try await store.undo() }
    #expect(error?.code == .unavailable && store.items.isEmpty && store.canUndo && !store.canRedo)
    try await store.undo()
    #expect(try await agree(store, engine) && store.items.count == 2)
  }

  @Test("An update whose closure throws does not reload the items, with or without transactions")
  func throwingUpdate() async throws {
    let engine = FailingStorageEngine(MinimalEngine())
    let store = try await recordingStore(engine, "a")
    engine.resetCalls()
    await #expect(throws: CancellationError.self) {
      try await store.update("a") { _ in throw CancellationError() }
    }
    #expect(engine.calls.map(\.method) == [.read])
    #expect(store.items == [Note(id: "a", text: "first")] && !store.canUndo)
  }

  @Test("An undo applies to the last call made before it, in progress or not")
  func concurrent() async throws {
    let store = try await recordingStore(MemoryStorageEngine(), "a")
    async let first: Void = store.insert(Note(id: "b"))
    await Task.yield()
    async let second: Void = store.insert(Note(id: "c"))
    _ = try await (first, second)
    async let undone = store.undo()
    async let again = store.undo()
    async let last = store.undo()
    let results = try await [undone, again, last]
    #expect(results.filter(\.self).count == 2 && store.items.map(\.id) == ["a"])
  }

  @Test("The history holds no more than the limit, and nothing without one")
  func limits() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let store = try await recordingStore(engine)
    store.undoLimit = StoreUndoLimit(calls: 3, bytes: 10_000)
    for id in 0..<5 { try await store.insert(Note(id: "\(id)")) }
    while try await store.undo() {}
    #expect(store.items.map(\.id) == ["0", "1"])
    try await store.insert(Note(id: "2", text: String(repeating: "x", count: 6_000)))
    try await store.insert(Note(id: "3", text: String(repeating: "x", count: 6_000)))
    while try await store.undo() {}
    #expect(store.items.map(\.id) == ["0", "1", "2"])
    try await store.insert(Note(id: "3"))
    try await store.insert(Note(id: "4", text: String(repeating: "x", count: 20_000)))
    #expect(!store.canUndo && !store.canRedo)
    #expect(try await store.undo() == false)
    store.undoLimit = .none
    engine.resetCalls()
    try await store.insert(Note(id: "5"))
    #expect(engine.calls.allSatisfy { $0.method != .withTransaction && !$0.isRead } && !store.canUndo)
  }

  @Test("An undo is a change like any other: events, observers and queries see it")
  func observed() async throws {
    let store = try await recordingStore(MemoryStorageEngine(), "a", "b")
    let query = store.query(where: { $0.text == "second" })
    let events = store.events
    let changes = Counter()
    withObservationTracking {
      _ = store.canUndo
    } onChange: {
      changes.increment()
    }
    try await store.insert(Note(id: "a", text: "second")).remove(Note(id: "b")).insert(Note(id: "c")).run()
    #expect(changes.count == 1 && query.count == 1)
    withObservationTracking {
      _ = store.items
    } onChange: {
      changes.increment()
    }
    try await store.undo()
    #expect(changes.count == 2 && query.items.isEmpty)
    let received = await first(6, of: events)
    #expect(received.map(\.operation) == [.loaded, .insert, .remove, .insert, .remove, .insert])
    #expect(received[4].items.map(\.id) == ["c"] && received[5].items.map(\.id) == ["a", "b"])
  }

  @Test("Many items are undone in one call, even on an engine without transactions")
  func many() async throws {
    for engine in [MemoryStorageEngine(), MinimalEngine()] as [any StorageEngine] {
      let store = try await Store<Note>(storage: engine)
      let notes = Note.numbered(0..<5_000)
      try await store.insert(notes)
      store.undoLimit = StoreUndoLimit(calls: 10)
      try await store.removeAll()
      try await store.insert(Note.numbered(0..<10, text: "new"))
      try await store.undo()
      try await store.undo()
      #expect(store.items == notes)
      let fresh = try await Store<Note>(storage: engine)
      #expect(fresh.items.sorted { $0.id < $1.id } == notes.sorted { $0.id < $1.id })
      try await store.redo()
      #expect(store.items.isEmpty)
    }
  }
}
