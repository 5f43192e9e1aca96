import Dispatch
import Foundation
import StockroomCore
import StockroomEngines
import TestFixtures
import Testing

/// Counts reads by the stage they have reached.
private final class Counts: Sendable {
  private let counts = MutexProtected((underWay: 0, begun: 0, done: 0))

  func withLock<Result: Sendable>(
    _ body: (inout (underWay: Int, begun: Int, done: Int)) -> Result
  ) -> Result { counts.withLock { body(&$0) } }
}

/// Long reads, each of which occupies a connection or a slot of the reader table.
@Suite(.timeLimit(.minutes(60))) struct LongReadTests {
  private let key = CacheKey(verbatim: "k")
  private let value = Data("value".utf8)

  @Test(
    "At most 32 long reads run concurrently, and a waiting one ends once its task is cancelled",
    arguments: ["sqlite", "lmdb"])
  func wait(name: String) async throws {
    let directory = try TemporaryDirectory()
    let opened = try await EngineCatalog.select([name])[0].open(directory.url, .process)
    let engine = try #require(opened as? any SnapshotStreamingEngine)
    try await engine.write(value, key: key)
    // Twice, because a cancelled read must free its slot for others.
    for _ in 0..<2 { try await checkWaiting(of: engine, scansWait: name == "lmdb") }
    try await engine.close()
  }

  private func checkWaiting(of engine: any SnapshotStreamingEngine, scansWait: Bool) async throws {
    let counts = Counts()
    let isReleased = DispatchSemaphore(value: 0)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<32 {
        group.addTask {
          try await engine.forEachEntry { _ in
            counts.withLock { $0.underWay += 1 }
            isReleased.wait()
          }
        }
      }
      let waiting: [Task<[Data], any Error>]
      do {
        // Also after an error, because the group waits for its tasks.
        defer { for _ in 0..<32 { isReleased.signal() } }
        while counts.withLock({ $0.underWay }) < 32 {
          try Task.checkCancellation()
          await Task.yield()
        }
        waiting = (0..<2).map { _ in
          Task { () async throws -> [Data] in
            counts.withLock { $0.begun += 1 }
            let all = try await engine.readAllData()
            counts.withLock { $0.done += 1 }
            return all
          }
        }
        while counts.withLock({ $0.begun }) < 2 {
          try Task.checkCancellation()
          await Task.yield()
        }
        for _ in 0..<1_000 { await Task.yield() }
        #expect(counts.withLock { $0.done } == 0)
        // Short reads do not wait for long ones.
        #expect(try await engine.read(key: key) == value)
        #expect(try await engine.read(keys: [key, CacheKey(verbatim: "absent")]) == [value])
        #expect(try await engine.keysExist([key]) == [key])
        #expect(try await engine.readEntries(keys: [key]).count == 1)
        #expect(try await engine.keyCount() == 1)
        // Slots in the reader table are scarcer than connections.
        if !scansWait { #expect(try await engine.scan(.all, limit: 1).count == 1) }
        waiting[0].cancel()
      }
      await #expect(throws: CancellationError.self) { try await waiting[0].value }
      #expect(try await waiting[1].value == [value])
      try await group.waitForAll()
    }
  }
}
