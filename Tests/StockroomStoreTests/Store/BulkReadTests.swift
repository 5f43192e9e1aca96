import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import Testing

/// Rewriting and undo read entries in batches, which bounds the number of large values in memory.
@MainActor @Suite("Bulk reads of a store", .timeLimit(.minutes(60))) struct BulkReadTests {
  /// Each batch has as many entries as have been read before, up to 64.
  private let sizes = [1, 1, 2, 4, 8, 16, 32, 64, 64, 64, 44]

  private func reads(_ engine: FailingStorageEngine) -> [FailingStorageEngine.Call] {
    engine.calls.filter { $0.method == .readDataAndKeys }
  }

  @Test("Entries of older versions are read at most 64 at a time, and once each")
  func rewriting() async throws {
    let base = MinimalEngine()
    try await writeFirstNotes(300, to: base)
    let engine = FailingStorageEngine(base)
    let store = try await Store<SecondNote>(storage: engine)
    engine.resetCalls()
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    let rewritten = reads(engine).prefix(sizes.count)
    #expect(rewritten.map(\.keys.count) == sizes)
    #expect(Set(rewritten.flatMap(\.keys)) == Set((0..<300).map { key("\($0)") }))
    #expect(store.rewritingState.rewrittenCount == 300)
    #expect(Set(try await versions(in: base).values) == ["2"])
  }

  @Test("A recorded call reads at most 64 entries at a time, in its own order, and once each")
  func recording() async throws {
    let engine = FailingStorageEngine(MinimalEngine())
    let store = try await Store<Note>(storage: engine)
    let notes = Note.numbered(0..<300).shuffled()
    try await store.insert(Array(notes.prefix(150)))
    store.undoLimit = StoreUndoLimit(calls: 10)
    engine.resetCalls()
    try await store.insert(notes.map { Note(id: $0.id, text: "new") }).remove(notes[7]).run()
    #expect(reads(engine).map(\.keys.count) == sizes)
    #expect(reads(engine).flatMap(\.keys) == notes.map { CacheKey(verbatim: $0.id) })
    #expect(store.items.count == 299)
  }

  @Test("A failed read ends the call with its error, and nothing has changed")
  func failingRead() async throws {
    let base = MinimalEngine()
    try await writeFirstNotes(300, to: base)
    let before = Set(try await base.readAllDataAndKeys().map(\.data))
    let engine = FailingStorageEngine(base)
    let store = try await Store<SecondNote>(storage: engine)
    let fault = StorageError(.locked, "A fault of the test.")
    func expectOneFailure(of body: @MainActor () async throws -> Void) async throws {
      engine.resetCalls()
      engine.failCall(5, with: fault) { $0.method == .readDataAndKeys }
      let error = await #expect(throws: StorageError.self) { try await body() }
      #expect(error?.code == .locked)
      #expect(reads(engine).map(\.keys.count) == [1, 1, 2, 4, 8] && !engine.calls.contains(where: \.isWrite))
      #expect(Set(try await base.readAllDataAndKeys().map(\.data)) == before && store.items.count == 300)
    }
    store.undoLimit = StoreUndoLimit(calls: 10)
    try await expectOneFailure {
      store.startRewritingOldVersions()
      try await store.oldVersionsHaveBeenRewritten()
    }
    try await expectOneFailure { try await store.remove(store.items) }
    #expect(!store.canUndo)
    try await store.remove(store.items)
    #expect(try await store.undo())
    #expect(Set(try await base.readAllDataAndKeys().map(\.data)) == before && store.items.count == 300)
  }

  @Test(
    "A call that names present and absent entries can be undone, however many of them are absent",
    arguments: [0, 3, 100, 150, 297, 300])
  func absent(count: Int) async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    let notes = Note.numbered(0..<300)
    let absent = Set(notes.shuffled().prefix(count).map(\.id))
    let present = notes.filter { !absent.contains($0.id) }
    try await store.insert(present)
    store.undoLimit = StoreUndoLimit(calls: 10)
    try await store.remove(notes.shuffled())
    #expect(store.items.isEmpty)
    #expect(try await store.undo() == !present.isEmpty)
    #expect(store.items == present)
    #expect(try await agree(store, engine))
    try await store.insert(notes.shuffled().map { Note(id: $0.id, text: "new") })
    #expect(try await store.undo())
    #expect(store.items == present)
    #expect(try await agree(store, engine))
  }
}
