import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

@Suite("PersistentCache: cancelled fetches", .timeLimit(.minutes(60)))
struct PersistentCacheCancellationTests {
  typealias Cache = PersistentCache<String, Int>

  @Test("A cancelled caller throws at once, and the load continues for the others")
  func oneCancelled() async throws {
    let cache = Cache(storage: nil)
    let (latch, started) = (Latch(), Latch())
    let loader: @Sendable () async throws -> Int = {
      started.open()
      await latch.wait()
      try Task.checkCancellation()
      return 5
    }
    let staying = Task { try await cache.fetch("key", fallback: loader) }
    await started.wait()
    let going = Task { try await cache.fetch("key") { 6 } }
    going.cancel()
    await #expect(throws: CancellationError.self) { try await going.value }
    latch.open()
    #expect(try await staying.value == 5)
    #expect(try await cache["key"] == 5)
  }

  @Test("Cancelling the caller whose loader is running does not cancel the load")
  func firstCancelled() async throws {
    let cache = Cache(storage: nil)
    let (latch, started) = (Latch(), Latch())
    let first = Task {
      try await cache.fetch("key") {
        started.open()
        await latch.wait()
        try Task.checkCancellation()
        return 5
      }
    }
    await started.wait()
    let joined = Shared(false)
    let second = Task {
      joined.withLock { $0 = true }
      return try await cache.fetch("key") {
        await latch.wait()
        return 5
      }
    }
    while !joined.withLock({ $0 }) { await Task.yield() }
    first.cancel()
    await #expect(throws: CancellationError.self) { try await first.value }
    latch.open()
    #expect(try await second.value == 5)
  }

  @Test("When all waiting calls are cancelled, the load is cancelled too, and the next call starts a new one")
  func allCancelled() async throws {
    let cache = Cache(storage: MemoryStorageEngine())
    let (started, cancelled, release) = (Latch(), Latch(), Latch())
    let callers = (0..<10).map { _ in
      Task {
        try await cache.fetch("key") {
          started.open()
          await withTaskCancellationHandler {
            await release.wait()
          } onCancel: {
            cancelled.open()
          }
          return 1
        }
      }
    }
    await started.wait()
    for caller in callers { caller.cancel() }
    for caller in callers { await #expect(throws: CancellationError.self) { try await caller.value } }
    await cancelled.wait()
    #expect(try await cache.fetch("key") { 2 } == 2)
    release.open()
    #expect(try await cache["key"] == 2)
  }

  @Test("A task that is already cancelled loads nothing")
  func cancelledBefore() async throws {
    let cache = Cache(storage: nil)
    let task = Task {
      while !Task.isCancelled { await Task.yield() }
      return try await cache.fetch("key") { 1 }
    }
    task.cancel()
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(try await cache["key"] == nil)
  }
}
