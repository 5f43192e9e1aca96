import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

@MainActor @Suite("Calls that fail halfway in a transaction", .timeLimit(.minutes(60)))
struct PartialCallTests {
  @Test("A call that fails in a batch with an update has no effect, and the update has one")
  func besideUpdate() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base.compressed(level: .fast, maximumValueSize: 1_000))
    let store = try await Store<Note>(storage: engine)
    try await store.insert(Note(id: "a"))
    engine.hold()
    let first = Task { try await store.insert(Note(id: "b")) }
    try await engine.waitForHeldCalls()
    let update = Task { try await store.update(Note(id: "a")) { $0.text = "new" } }
    let large = Note(id: "d", text: String(repeating: "x", count: 2_000))
    let insertion = Task { try await store.insert([Note(id: "c"), large]) }
    for _ in 0..<20 { await Task.yield() }
    engine.release()
    try await first.value
    _ = try await update.value
    let error = await #expect(throws: StorageError.self) { try await insertion.value }
    #expect(error?.code == .valueTooLarge)
    #expect(store.items == [Note(id: "a", text: "new"), Note(id: "b")])
    #expect(try await agree(store, engine))
  }

  @Test("A removal of all items that fails in a batch with an update has no effect, and the update has one")
  func removalBesideUpdate() async throws {
    let engine = FailingStorageEngine(OneByOneLayer(base: MemoryStorageEngine(), refused: "note 3"))
    let store = try await Store<Note>(storage: engine)
    try await store.insert(Note.numbered(0..<5))
    engine.hold()
    let first = Task { try await store.insert(Note(id: "b")) }
    try await engine.waitForHeldCalls()
    let update = Task { try await store.update("note 0") { $0.text = "new" } }
    let removal = Task { try await store.removeAll() }
    for _ in 0..<20 { await Task.yield() }
    engine.release()
    try await first.value
    _ = try await update.value
    let error = await #expect(throws: StorageError.self) { try await removal.value }
    #expect(error?.code == .diskFull)
    #expect(store.items == [Note(id: "note 0", text: "new")] + Note.numbered(1..<5) + [Note(id: "b")])
    #expect(try await agree(store, engine))
  }

  @Test("An update whose write fails halfway has no effect")
  func partlyWrittenUpdate() async throws {
    let engine = PartlyWritingLayer(base: MemoryStorageEngine())
    let store = try await Store<Note>(storage: engine)
    try await store.insert(Note(id: "a"))
    let error = await #expect(throws: StorageError.self) { try await store.update("a") { $0.text = "new" } }
    #expect(error?.code == .io)
    #expect(store.items == [Note(id: "a")])
    #expect(try await agree(store, engine))
  }

  @Test(
    "An error thrown by an update's closure fails no other call, whatever the error",
    arguments: [true, false], [StorageError.Code.locked, .closed, .unavailable])
  func refusedUpdate(hasTransactions: Bool, code: StorageError.Code) async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(MaybeTransactional(base: base, hasTransactions: hasTransactions))
    let store = try await Store<Note>(storage: engine)
    try await store.insert(Note(id: "a"))
    engine.hold()
    let first = Task { try await store.insert(Note(id: "b")) }
    try await engine.waitForHeldCalls()
    let update = Task {
      try await store.update("a") {
        $0.text = "new"
        throw StorageError(code, "No.")
      }
    }
    let insertion = Task { try await store.insert(Note(id: "c")) }
    for _ in 0..<20 { await Task.yield() }
    engine.release()
    try await first.value
    let error = await #expect(throws: StorageError.self) { try await update.value }
    #expect(error?.code == code && error?.message == "No.")
    try await insertion.value
    #expect(store.items == ["a", "b", "c"].map { Note(id: $0) })
    #expect(try await agree(store, engine))
  }
}

/// An engine whose transactions remove all entries one by one, and fail to remove one of them.
private struct OneByOneLayer: StorageLayer {
  let base: MemoryStorageEngine
  let refused: String

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { [refused] in try body(OneByOneTransaction($0, refused: refused)) }
  }

  func apply(_ operations: [StorageOperation]) async throws {
    try await withTransaction { try $0.apply(operations) }
  }
}

private final class OneByOneTransaction: ForwardingTransaction {
  private let refused: String

  init(_ base: any StorageTransaction, refused: String) {
    self.refused = refused
    super.init(base)
  }

  override func removeAll() throws { for key in try allKeys().sorted() { try remove(key: key) } }

  override func remove(key: CacheKey) throws {
    if key.value == refused { throw StorageError(.diskFull, "This one stays.") }
    try super.remove(key: key)
  }
}

/// An engine whose transactions throw after each write although it has been done.
private struct PartlyWritingLayer: StorageLayer {
  let base: MemoryStorageEngine

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { try body(PartlyWritingTransaction($0)) }
  }
}

private final class PartlyWritingTransaction: ForwardingTransaction {
  override func write(_ data: Data, key: CacheKey) throws {
    try super.write(data, key: key)
    throw StorageError(.io, "This has been written.")
  }
}
