import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTestSupport
import Testing

@Suite("First calls of an engine with an inventory", .timeLimit(.minutes(60)))
struct InventoryVerificationTests {
  private let base = MemoryStorageEngine()
  private let keys = (0..<10).map { CacheKey(verbatim: "\($0)") }
  private let value = Data("value".utf8)

  @Test("Concurrent first calls share one comparison of the inventory")
  func firstCalls() async throws {
    let (key, value) = (keys[0], value)
    try await base.checksummedWithInventory().write(keys.map { ($0, value) })
    let failing = FailingStorageEngine(base)
    let engine = try failing.checksummedWithInventory()
    failing.hold { $0.method == .allKeys }
    try await withThrowingTaskGroup { group in
      for _ in 0..<64 {
        group.addTask {
          let read = try await engine.read(key: key)
          #expect(read == value)
        }
      }
      try await failing.waitForHeldCalls()
      // Enough time for calls that would list the keys themselves.
      for _ in 0..<1_000 { await Task.detached {}.value }
      failing.release()
      try await group.waitForAll()
    }
    #expect(failing.calls.count { $0.method == .allKeys } == 1)
  }

  @Test("Cancelling a first call fails no other call, and a failed one is retried")
  func cancelledFirstCall() async throws {
    let (key, value) = (keys[0], value)
    try await base.checksummedWithInventory().write(keys.map { ($0, value) })
    let failing = FailingStorageEngine(base)
    let engine = try failing.checksummedWithInventory()
    failing.failCall { $0.method == .allKeys }
    await #expect(throws: StorageError.self) { try await engine.read(key: key) }
    failing.hold { $0.method == .allKeys }
    let first = Task { try await engine.read(key: key) }
    try await failing.waitForHeldCalls()
    let second = Task { try await engine.read(key: key) }
    for _ in 0..<1_000 { await Task.detached {}.value }
    first.cancel()
    await #expect(throws: CancellationError.self) { try await first.value }
    failing.release()
    #expect(try await second.value == value)
  }
}
