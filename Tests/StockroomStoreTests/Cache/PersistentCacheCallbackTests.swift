import Dispatch
import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

@Suite("PersistentCache: callbacks", .timeLimit(.minutes(60)))
struct PersistentCacheCallbackTests {
  private let queue = DispatchQueue(label: "PersistentCacheCallbackTests")

  @Test("A value in memory is delivered before the call returns")
  func atOnce() throws {
    let cache = PersistentCache<Int, String>(storage: MemoryStorageEngine())
    cache[1] = "one"
    let answers = Shared<[String?]>([])
    cache.fetch(1, queue: queue) { result in answers.withLock { $0.append(try? result.get()) } }
    cache.fetch(1, queue: queue, fallback: { "two" }) { result in
      answers.withLock { $0.append(try? result.get()) }
    }
    #expect(answers.withLock { $0 } == ["one", "one"])
  }

  @Test("A stored, missing or loaded value is delivered on the queue")
  func onQueue() async throws {
    let storage = MemoryStorageEngine()
    try await PersistentCache<Int, String>(storage: storage).store("one", forKey: 1)
    let cache = PersistentCache<Int, String>(storage: storage)
    let found = try await withCheckedThrowingContinuation { continuation in
      cache.fetch(1, queue: queue) { [queue] result in
        dispatchPrecondition(condition: .onQueue(queue))
        continuation.resume(with: result)
      }
    }
    #expect(found == "one")
    let missing = try await withCheckedThrowingContinuation { continuation in
      cache.fetch(2, queue: queue) { continuation.resume(with: $0) }
    }
    #expect(missing == nil)
    let loaded = try await withCheckedThrowingContinuation { continuation in
      cache.fetch(2, queue: queue, fallback: { "two" }) { continuation.resume(with: $0) }
    }
    #expect(loaded == "two")
    #expect(try await cache[2] == "two")
  }

  @Test("A failure is delivered, and nil is a value where values are optional")
  func failures() async throws {
    let storage = MemoryStorageEngine()
    let cache = PersistentCache<Int, Int?>(storage: storage)
    cache[1] = .some(nil)
    let answer = Shared<Int???>(nil)
    cache.fetch(1, queue: queue) { result in answer.withLock { $0 = try? result.get() } }
    #expect(answer.withLock { $0 } == .some(.some(nil)))
    try await cache.sync()
    try await storage.close()
    let error = await withCheckedContinuation { continuation in
      cache.fetch(2, queue: queue) { result in
        if case .failure(let error) = result { continuation.resume(returning: error as? StorageError) }
      }
    }
    #expect(error?.code == .closed)
  }
}
