import Foundation
import StockroomCore
import StockroomStore
import TestFixtures
import Testing

/// Undo reads many entries in one call, some of which may be absent.
@MainActor @Suite("Undo of calls that change many items") struct UndoOfManyTests {
  nonisolated private static let engines = AnyEngine.all.filter { ["memory", "sqlite"].contains($0.name) }

  @Test(
    "However many of the items existed before, all are restored in the same order",
    arguments: engines, [1, 2, 3, 50, 199])
  func insertions(_ kind: AnyEngine, stride: Int) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await kind.open(directory)
    let store = try await Store<Note>(storage: engine)
    let all = (0..<200).map { Note(id: "\($0)", text: "new") }
    // One of every `stride` items; in the first part, all but one of every `stride`.
    let former = all.enumerated().filter { ($0.offset.isMultiple(of: stride)) != ($0.offset < 100) }.map(
      \.element)
    try await store.insert(former.map { Note(id: $0.id, text: "old \($0.id)") })
    let before = (items: store.items, entries: try await engine.readAllEntries())
    store.undoLimit = StoreUndoLimit(calls: 10)

    try await store.insert(all)
    let after = (items: store.items, entries: try await engine.readAllEntries())
    #expect(after.items.count == 200 && after.items.allSatisfy { $0.text == "new" })
    #expect(try await store.undo())
    #expect(store.items == before.items)
    #expect(try await engine.readAllEntries().map(\.data) == before.entries.map(\.data))
    #expect(try await store.redo())
    #expect(store.items == after.items)
    #expect(try await engine.readAllEntries().map(\.data) == after.entries.map(\.data))
    try await engine.close()
  }
}
