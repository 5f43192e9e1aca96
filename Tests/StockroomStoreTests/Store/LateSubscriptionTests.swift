import Dispatch
import Foundation
import StockroomCore
import StockroomMemory
import StockroomSQLite
@testable import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

/// Stores that could not be notified of the changes of others when they loaded their items (rule S9).
@MainActor @Suite("Stores that subscribe late", .timeLimit(.minutes(60))) struct LateSubscriptionTests {
  @Test("A store that only shows items subscribes again by itself after a failure")
  func failedOnce() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    engine.failCall(with: StorageError(.locked, "Another process writes.")) { $0.method == .changes }
    let store = try await Store<Note>(storage: engine)
    let other = try await Store<Note>(storage: base)
    try await other.insert(Note(id: "a"))
    try await wait { store.items.map(\.id) == ["a"] }
    try await other.insert(Note(id: "b"))
    try await wait { store.items.map(\.id) == ["a", "b"] }
  }

  @Test("A store loads its items while a transaction's body runs, and has all of them after it")
  func longBody() async throws {
    let directory = try TemporaryDirectory()
    let engine = try SQLiteStorageEngine(directory: FileManager.Directory(url: directory.url))
    try await engine.write(try JSONEncoder().encode(Note(id: "a")), key: CacheKey(verbatim: "a"))
    let entered = AsyncStream<Void>.makeStream()
    let end = DispatchSemaphore(value: 0)
    let writing = Task.detached {
      try await engine.withTransaction { transaction in
        entered.continuation.finish()
        end.wait()
        try transaction.write(try JSONEncoder().encode(Note(id: "b")), key: CacheKey(verbatim: "b"))
      }
    }
    for await _ in entered.stream {}
    let store = Store<Note>(loadingInBackground: engine)
    store.subscriptionTimeout = .milliseconds(100)
    try await store.itemsHaveLoaded()
    #expect(store.items.map(\.id) == ["a"])
    end.signal()
    try await writing.value
    try await wait { store.items.map(\.id) == ["a", "b"] }
    try await engine.close()
  }
}
