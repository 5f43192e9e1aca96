import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

/// An engine whose read does not return before the reader is cancelled.
private final class EndlessEngine: StorageEngine {
  let isReading = AsyncStream<Void>.makeStream()
  let isCancelled = AsyncStream<Void>.makeStream()

  func readAllEntries() async throws -> [StorageEntry] {
    isReading.continuation.yield()
    let (never, continuation) = AsyncStream<Void>.makeStream()
    for await _ in never {}
    withExtendedLifetime(continuation) {}
    isCancelled.continuation.yield()
    throw CancellationError()
  }

  func write(_ data: Data, key: CacheKey) async throws {}
  func read(key: CacheKey) async throws -> Data? { nil }
  func remove(key: CacheKey) async throws {}
  func allKeys() async throws -> [CacheKey] { [] }
  func createdAt(key: CacheKey) async throws -> Date? { nil }
  func updatedAt(key: CacheKey) async throws -> Date? { nil }
}

/// An engine whose keys have no timestamps.
private struct TimelessEngine: StorageEngine {
  let base = MemoryStorageEngine()
  func write(_ data: Data, key: CacheKey) async throws { try await base.write(data, key: key) }
  func read(key: CacheKey) async throws -> Data? { try await base.read(key: key) }
  func remove(key: CacheKey) async throws { try await base.remove(key: key) }
  func allKeys() async throws -> [CacheKey] { try await base.allKeys() }
  func createdAt(key: CacheKey) async throws -> Date? { nil }
  func updatedAt(key: CacheKey) async throws -> Date? { nil }
}

private struct Tag: Codable, Sendable, Identifiable { var id: String }

@MainActor @Suite("Loading a store") struct StoreLoadingTests {
  @Test("Cancelling the initializer of a store throws and cancels the read")
  func cancelled() async throws {
    let engine = EndlessEngine()
    let making = Task { try await Store<Note>(storage: engine).items.count }
    _ = await first(1, of: engine.isReading.stream)
    making.cancel()
    await #expect(throws: CancellationError.self) { try await making.value }
    _ = await first(1, of: engine.isCancelled.stream)
  }

  @Test("A cancelled wait for items throws at once, and the load continues")
  func waitingCancelled() async throws {
    let engine = EndlessEngine()
    let store = Store<Note>(loadingInBackground: engine)
    let waiting = Task { try await store.itemsHaveLoaded() }
    _ = await first(1, of: engine.isReading.stream)
    waiting.cancel()
    await #expect(throws: CancellationError.self) { try await waiting.value }
    guard case .loading = store.loadingState else {
      Issue.record("The state is \(store.loadingState)"); return
    }
  }

  @Test("Loading from an engine with keys without timestamps throws")
  func timeless() async throws {
    let engine = TimelessEngine()
    let store = Store<Note>(loadingInBackground: engine)
    try await store.insert(Note(id: "a"))
    await #expect(throws: StorageError.self) { try await Store<Note>(storage: engine) }
  }

  @Test("Two stores of one type can share an engine; a store of another type throws and changes nothing")
  func otherType() async throws {
    let engine = MemoryStorageEngine()
    var notes: Store<Note>? = try await Store<Note>(storage: engine)
    try await notes?.insert(Note(id: "a"))
    #expect(try await Store<Note>(storage: engine).items.count == 1)

    var error = await #expect(throws: StorageError.self) { try await Store<Tag>(storage: engine) }
    #expect(error?.code == .unsupported)
    #expect(error?.message.contains("Note") == true && error?.message.contains("Tag") == true)
    let tags = Store<Tag>(loadingInBackground: engine)
    error = await #expect(throws: StorageError.self) { try await tags.itemsHaveLoaded() }
    #expect(error?.code == .unsupported)
    error = await #expect(throws: StorageError.self) {
      try await tags.removeAll().insert(Tag(id: "b")).run()
    }
    #expect(error?.code == .unsupported)
    error = await #expect(throws: StorageError.self) { try await tags.removeAll() }
    #expect(error?.code == .unsupported)
    #expect(notes?.items.count == 1)
    #expect(try await engine.keyCount() == 1)

    // After that another store can claim the engine.
    notes = nil
    try await tags.removeAll().insert(Tag(id: "b")).run()
    #expect(tags.items.map(\.id) == ["b"])
    await #expect(throws: StorageError.self) { try await Store<Note>(storage: engine) }
  }

  @Test("An engine of a value type, which has no identity, can be used by stores of two types")
  func values() async throws {
    let engine = MinimalEngine()
    let notes = try await Store<Note>(storage: engine)
    let tags = try await Store<Tag>(storage: engine)
    #expect(notes.items.isEmpty && tags.items.isEmpty)
  }
}
