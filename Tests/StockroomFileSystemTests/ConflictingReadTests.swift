import Dispatch
import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import StockroomFileSystem

@Suite("Reads that conflict with writers")
struct ConflictingReadTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  @Test("A listing with which one write conflicts is retried without the lock")
  func listing() throws {
    let connection = try DiskConnection(directory: place.url.path, durability: .process)
    defer { connection.release() }
    var count = 0
    let result = try connection.listing(ReadAttempt(hasLock: false)) { _ in
      count += 1
      if count == 1 {
        var contents = try connection.state.read()
        contents.version += 2
        try connection.state.write(contents)
      }
      return count
    }
    #expect(result == 2)
  }

  @Test("However many reads request the lock, a writer waits for only one of them")
  func queue() async throws {
    let engine = try place.open(.process)
    let record = Record()
    let readers = 4
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<readers {
        group.addTask {
          try await engine.readingMany(.max, retries: 1) { _, attempt in
            guard attempt.hasLock else {
              record.begun.withLock { $0 += 1 }
              throw DiskConnection.SeqlockConflict()
            }
            record.isLocked.withLock { $0 = true }
            record.isWritten.wait()
            record.order.withLock { $0.append("read") }
          }
        }
      }
      while record.begun.withLock({ $0 }) < readers || !record.isLocked.withLock({ $0 }) {
        await Task.yield()
      }
      // On the thread that commits groups of writes.
      try engine.thread.enqueue { record.order.withLock { $0.append("write") } }
      for _ in 0..<readers { record.isWritten.signal() }
      try await group.waitForAll()
    }
    let found = record.order.withLock { $0 }
    #expect(found == ["read", "write"] + Array(repeating: "read", count: readers - 1))
    try await engine.close()
  }

  /// The progress of a test's reads and write.
  private final class Record: Sendable {
    let begun = MutexProtected(0)
    let isLocked = MutexProtected(false)
    let order = MutexProtected<[String]>([])
    let isWritten = DispatchSemaphore(value: 0)
  }
}
