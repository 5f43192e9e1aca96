import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import Testing

/// How a store begins to follow what others change.
@MainActor @Suite("The beginning of following", .timeLimit(.minutes(10))) struct FollowingStartTests {
  @Test(
    "No change waits for a subscription after one that has failed, and nothing is missed once one succeeds")
  func slowSubscription() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    engine.failCall { $0.method == .changes }
    let store = try await Store<Note>(storage: engine)
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
