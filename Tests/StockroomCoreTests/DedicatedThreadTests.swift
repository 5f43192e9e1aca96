import Foundation
import StockroomCore
import Testing

@Suite struct DedicatedThreadTests {
  @Test("Stopping the thread first runs the waiting jobs")
  func stop() throws {
    let thread = DedicatedThread()
    let done = MutexProtected(0)
    for _ in 0..<100 { try thread.enqueue { done.withLock { $0 += 1 } } }
    thread.stop()
    #expect(done.withLock { $0 } == 100)
    #expect(throws: StorageError.self) { try thread.enqueue {} }
    thread.stop()
  }

  @Test("A job may stop its own thread")
  func stopFromWithin() async throws {
    let thread = DedicatedThread()
    try await thread.run { thread.stop() }
    await #expect(throws: StorageError.self) { try await thread.run {} }
  }

  @Test("An error thrown by a job is thrown to its caller")
  func failure() async throws {
    let thread = DedicatedThread()
    defer { thread.stop() }
    await #expect(throws: Refused.self) { try await thread.run { throw Refused() } }
    #expect(try await thread.run { 7 } == 7)
  }
}

private struct Refused: Error {}
