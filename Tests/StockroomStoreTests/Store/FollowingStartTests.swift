import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
@testable import StockroomStore
import StockroomTestSupport
import Testing

/// How a store starts to follow the changes of others.
@MainActor @Suite("Starting to follow changes", .timeLimit(.minutes(60))) struct FollowingStartTests {
  @Test(
    "Changes of others between subscription and load are one event, and a later identical write is another",
    arguments: [0, 1_500])
  func isOneEvent(countBefore: Int) async throws {
    let base = MemoryStorageEngine()
    let other = try await Store<Note>(storage: base)
    let earlier = (0..<countBefore).map { Note(id: "\($0)") }
    try await other.insert(earlier)
    let store = Store<Note>(
      loadingInBackground: ChangedBeforeLoad(base: base) {
        try await other.insert([Note(id: "a"), Note(id: "b")])
      })
    var events = store.events.makeAsyncIterator()
    #expect(await events.next()?.operation == .initialized)
    #expect(await events.next()?.items.map(\.id) == earlier.map(\.id) + ["a", "b"])
    try await other.insert(Note(id: "c"))
    #expect(await events.next()?.items.map(\.id) == ["c"])
    try await other.insert(Note(id: "a"))
    #expect(await events.next()?.items.map(\.id) == ["a"])
    #expect(store.items == other.items)
  }

  @Test("Others can restore an item to its state at the load after this store has overwritten it")
  func restored() async throws {
    let base = MemoryStorageEngine()
    let other = try await Store<Note>(storage: base)
    let store = Store<Note>(
      loadingInBackground: ChangedBeforeLoad(base: base) {
        try await other.insert([Note(id: "a"), Note(id: "b"), Note(id: "c")])
      })
    try await store.itemsHaveLoaded()
    let loaded = try await base.readAllEntries()
    try await store.insert(Note(id: "a", text: "new"))
    try await store.remove(Note(id: "b"))
    try await other.insert(Note(id: "c", text: "new"))
    try await wait { store["c"]?.text == "new" }
    try await base.writeEntries(loaded)
    try await wait { store.items == [Note(id: "a"), Note(id: "c"), Note(id: "b")] }
  }

  @Test(
    "No change waits for a new subscription after a failed one, and nothing is missed once one succeeds")
  func slowSubscription() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    engine.failCall { $0.method == .changes }
    let store = Store<Note>(loadingInBackground: engine)
    // Only changes subscribe again.
    store.resubscriptionDelay = .seconds(3_600)
    try await store.itemsHaveLoaded()
    engine.hold { $0.method == .changes }
    try await store.insert(Note(id: "a"))
    try await engine.waitForHeldCalls()
    try await store.insert(Note(id: "b"))
    #expect(store.items.map(\.id) == ["a", "b"])
    #expect(engine.calls.count { $0.method == .changes } == 2)
    try await base.write(try JSONEncoder().encode(Note(id: "c")), key: CacheKey(verbatim: "c"))
    engine.release()
    try await wait { store.items.map(\.id) == ["a", "b", "c"] }
  }
}

/// An engine in which others make a change before all entries are read for the first time.
private final class ChangedBeforeLoad: StorageLayer {
  let base: MemoryStorageEngine
  private let change: MutexProtected<(@Sendable () async throws -> Void)?>

  init(base: MemoryStorageEngine, _ change: @escaping @Sendable () async throws -> Void) {
    self.base = base
    self.change = MutexProtected(change)
  }

  func readAllEntries() async throws -> [StorageEntry] {
    if let change = change.withLock({ $0.take() }) { try await change() }
    return try await base.readAllEntries()
  }
}
