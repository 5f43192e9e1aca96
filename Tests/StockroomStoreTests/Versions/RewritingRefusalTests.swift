import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import Testing

/// Rewriting with an entry that the engine refuses, and with failing reads.
@MainActor @Suite(.timeLimit(.minutes(60))) struct RewritingRefusalTests {
  private let base = MemoryStorageEngine()
  private let expected = (0..<20).map { SecondNote(id: "\($0)", text: "text \($0)") }

  private func bytes() async throws -> [CacheKey: Data] {
    Dictionary(uniqueKeysWithValues: try await base.readAllDataAndKeys().map { ($0.key, $0.data) })
  }

  @Test(
    "A batch with a refused entry changes nothing, and is repeated by the next call",
    arguments: [StorageError.Code.diskFull, .io])
  func transaction(code: StorageError.Code) async throws {
    try await writeFirstNotes(20, to: base)
    let before = try await bytes()
    let layer = RefusingLayer(base)
    let store = try await Store<SecondNote>(storage: layer)
    layer.refuse(key("7"), with: StorageError(code, "A fault of the test."))
    store.startRewritingOldVersions()
    let error = await #expect(throws: StorageError.self) { try await store.oldVersionsHaveBeenRewritten() }
    #expect(error?.code == code)
    #expect(try await bytes() == before && store.items == expected)

    layer.refuse(key("7"), with: nil)
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    #expect(store.rewritingState.rewrittenCount == 20 && store.items == expected)
    #expect(Set(try await versions(in: base).values) == ["2"])
  }

  @Test(
    "Without atomic batches a refusal leaves each entry old or new, and the next call rewrites the rest",
    arguments: [StorageError.Code.diskFull, .io])
  func withoutAtomicBatches(code: StorageError.Code) async throws {
    try await writeFirstNotes(20, to: base)
    let before = try await bytes()
    let layer = RefusingLayer(base)
    let engine = MinimalEngine(layer)
    let store = try await Store<SecondNote>(storage: engine)
    let items = Set(store.items.map(\.text))
    layer.refuse(key("7"), with: StorageError(code, "A fault of the test."))
    store.startRewritingOldVersions()
    let error = await #expect(throws: StorageError.self) { try await store.oldVersionsHaveBeenRewritten() }
    #expect(error?.code == code)
    let left = try await versions(in: base).filter { $0.value == "1" }.map(\.key)
    let after = try await bytes()
    #expect(left.contains("7") && left.allSatisfy { after[key($0)] == before[key($0)] })
    let storage = ObjectStorage<SecondNote>(storage: base)
    for note in expected { #expect(try await storage.object(forKey: key(note.id)) == note) }
    #expect(Set(store.items.map(\.text)) == items && store.items.count == 20)

    layer.refuse(key("7"), with: nil)
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    #expect(store.rewritingState.rewrittenCount == left.count)
    #expect(Set(try await versions(in: base).values) == ["2"])
  }

  @Test(
    "Calls committed in one batch with a failing rewrite take effect",
    arguments: [StorageError.Code.diskFull, .io])
  func besideCalls(code: StorageError.Code) async throws {
    try await writeFirstNotes(20, to: base)
    let before = try await bytes()
    let layer = RefusingLayer(base)
    let engine = FailingStorageEngine(layer)
    let store = try await Store<SecondNote>(storage: engine)
    layer.refuse(key("7"), with: StorageError(code, "A fault of the test."))
    engine.hold { $0.method == .withTransaction }
    let first = Task { try await store.insert(SecondNote(id: "first", text: "")) }
    try await engine.waitForHeldCalls()
    store.startRewritingOldVersions()
    let second = Task { try await store.insert(SecondNote(id: "second", text: "")) }
    for _ in 0..<20 { await Task.yield() }
    // While the second call is in progress, the batch waits, and later calls wait behind it.
    engine.release()
    engine.hold { $0.method == .withTransaction }
    try await engine.waitForHeldCalls()
    let update = Task { try await store.update("3") { $0.isDone = true } }
    let third = Task { try await store.insert(SecondNote(id: "third", text: "")) }
    for _ in 0..<20 { await Task.yield() }
    engine.resetCalls()
    engine.release()
    try await first.value
    try await second.value
    #expect(try await update.value?.isDone == true)
    try await third.value
    let error = await #expect(throws: StorageError.self) { try await store.oldVersionsHaveBeenRewritten() }
    #expect(error?.code == code)
    // The failed batch had no effect, so nothing is reloaded.
    #expect(!engine.calls.contains { $0.method == .readAllEntries })
    #expect(store.items.map(\.id) == expected.map(\.id) + ["first", "second", "third"])
    let after = try await bytes()
    #expect(before.allSatisfy { $0.key.value == "3" || after[$0.key] == $0.value })
    #expect(try await Store<SecondNote>(storage: base).items == store.items)
  }

  @Test("Rewriting waits for entries that others have just stored in an older version, and rewrites them")
  func justStored() async throws {
    let engine = FailingStorageEngine(base)
    let store = try await Store<SecondNote>(storage: engine)
    engine.hold { $0.method == .readEntries }
    try await writeFirstNotes(3, to: base)
    try await engine.waitForHeldCalls()
    store.startRewritingOldVersions()
    // It has begun, and is waiting.
    for _ in 0..<20 { await Task.yield() }
    engine.release()
    try await store.oldVersionsHaveBeenRewritten()
    #expect(store.rewritingState.rewrittenCount == 3 && store.items.count == 3)
    #expect(Set(try await versions(in: base).values) == ["2"])
  }

  @Test("Entries that others have changed are still rewritten after a failed read")
  func failedRead() async throws {
    try await writeFirstNotes(3, to: base)
    let engine = FailingStorageEngine(base)
    let store = try await Store<SecondNote>(storage: engine)
    engine.failCall { $0.method == .readEntries }
    engine.hold { $0.method == .readEntries }
    // An older program stores them again, in one batch.
    try await writeFirstNotes(3, to: base)
    try await engine.waitForHeldCalls()
    store.startRewritingOldVersions()
    engine.release()
    try await store.oldVersionsHaveBeenRewritten()
    #expect(store.rewritingState.rewrittenCount == 3)
    #expect(Set(try await versions(in: base).values) == ["2"])
  }

  @Test("Items are still rewritten after a failed reload")
  func failedReload() async throws {
    try await writeFirstNotes(3, to: base)
    let engine = FailingStorageEngine(base)
    let store = try await Store<SecondNote>(storage: engine)
    engine.failCall(1, .afterwards) { $0.method == .withTransaction }
    engine.failCall { $0.method == .readAllEntries }
    engine.hold { $0.method == .withTransaction }
    let insertion = Task { try await store.insert(SecondNote(id: "new", text: "")) }
    try await engine.waitForHeldCalls()
    store.startRewritingOldVersions()
    engine.release()
    let error = await #expect(throws: StorageError.self) { try await insertion.value }
    #expect(error?.code == .io)
    try await store.oldVersionsHaveBeenRewritten()
    #expect(store.rewritingState.rewrittenCount == 3 && store.items.map(\.id) == ["0", "1", "2", "new"])
    #expect(Set(try await versions(in: base).values) == ["2"])
  }

  @Test("An item that is reloaded while its batch waits is counted once")
  func loadedAgain() async throws {
    try await writeFirstNotes(3, to: base)
    let engine = FailingStorageEngine(base)
    let store = try await Store<SecondNote>(storage: engine)
    engine.hold { $0.method == .withTransaction }
    let first = Task { try await store.insert(SecondNote(id: "first", text: "")) }
    try await engine.waitForHeldCalls()
    store.startRewritingOldVersions()
    for _ in 0..<20 { await Task.yield() }
    engine.failCall(1, .afterwards) { $0.method == .withTransaction }
    let second = Task { try await store.insert(SecondNote(id: "second", text: "")) }
    for _ in 0..<20 { await Task.yield() }
    engine.release()
    try await first.value
    await #expect(throws: StorageError.self) { try await second.value }
    // Three entries are read, then none.
    try await store.oldVersionsHaveBeenRewritten()
    store.startRewritingOldVersions()
    guard case .rewriting(completed: 0, total: 0) = store.rewritingState else {
      Issue.record("\(store.rewritingState)")
      return
    }
    try await store.oldVersionsHaveBeenRewritten()
    #expect(engine.calls.count { $0.method == .withTransaction } == 3)
  }
}
