import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import Testing

@MainActor @Suite("Calls that fail half way within a transaction", .timeLimit(.minutes(10)))
struct PartialCallTests {
  @Test("Of a call that fails beside an update nothing has been done, and the update has")
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

  @Test("Of a removal of all items that fails beside an update nothing has been done, and the update has")
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
}

/// An engine whose transactions remove all entries one by one, and one of them not at all.
private struct OneByOneLayer: StorageLayer {
  let base: MemoryStorageEngine
  let refused: String

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { [refused] in try body(OneByOneTransaction($0, refused: refused)) }
  }

  func apply(_ operations: [StorageOperation]) async throws {
    try await withTransaction { transaction in
      for operation in operations {
        switch operation {
        case .write(let data, let key): try transaction.write(data, key: key)
        case .remove(let key): try transaction.remove(key: key)
        case .removeAll: try transaction.removeAll()
        }
      }
    }
  }
}

private final class OneByOneTransaction: StorageTransaction {
  private let base: any StorageTransaction
  private let refused: String

  init(_ base: any StorageTransaction, refused: String) { (self.base, self.refused) = (base, refused) }

  func removeAll() throws { for key in try allKeys().sorted() { try remove(key: key) } }

  func remove(key: CacheKey) throws {
    if key.value == refused { throw StorageError(.diskFull, "This one stays.") }
    try base.remove(key: key)
  }

  func read(key: CacheKey) throws -> Data? { try base.read(key: key) }
  func read(keys: [CacheKey]) throws -> [Data] { try base.read(keys: keys) }
  func keyExists(_ key: CacheKey) throws -> Bool { try base.keyExists(key) }
  func keyCount() throws -> Int { try base.keyCount() }
  func allKeys() throws -> [CacheKey] { try base.allKeys() }
  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    try base.scan(range, limit: limit)
  }
  func write(_ data: Data, key: CacheKey) throws { try base.write(data, key: key) }
}
