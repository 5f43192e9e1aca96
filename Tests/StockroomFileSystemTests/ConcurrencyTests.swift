import Foundation
import StockroomCore
import TestFixtures
import StockroomFileSystem
import Synchronization
import Testing

@Suite("Engines that share a directory")
struct ConcurrencyTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  @Test("An engine that runs transactions without a pause lets another engine write")
  func turns() async throws {
    let busy = try place.open()
    let other = try place.open()
    let queue = try Queue(place.file(".stockroom/journal").path)
    let isDone = Flag()
    let writes = try await withThrowingTaskGroup(of: Int?.self) { group in
      // While the body of one task runs, the others wait, so the lock is requested again as soon as it is
      // released.
      for _ in 0..<Queue.tasks {
        group.addTask {
          while !isDone.isSet {
            try await busy.withTransaction { transaction in
              try queue.bodyBegins(after: try transaction.read(key: "other").map(number) ?? 0)
              usleep(50_000)
              try transaction.write(data("\(UInt64.random(in: 0...(.max)))"), key: "bodies")
            }
          }
          return nil
        }
      }
      group.addTask {
        defer { isDone.set() }
        var number = 0
        while queue.waits < 10, number < 1_000 {
          number += 1
          try await other.write(data("\(number)"), key: "other")
        }
        return number
      }
      return try await group.reduce(nil) { $0 ?? $1 }
    }
    #expect(try await busy.read(key: "other").map(number) == writes)
    #expect(queue.waits >= 10)
    // The bodies that were already waiting share one commit.
    #expect(queue.mostBodies <= Queue.tasks)
  }

  /// Counts the bodies that begin while a write of another engine waits for its turn.
  private final class Queue: Sendable {
    /// The number of concurrent transactions.
    static let tasks = 4

    private struct State {
      /// The last write completed when a body began.
      var done = -1
      /// The number of bodies that began since another engine was seen waiting; nil if none was seen.
      var bodies: Int?
      var waits = 0
      var mostBodies = 0
    }

    private let journal: FileDescriptor
    private let state = MutexProtected(State())

    /// - Parameter path: The file that an engine locks while it waits for its turn.
    init(_ path: String) throws {
      journal = try #require(try FileDescriptor.openFile(atPath: path))
    }

    /// The number of writes that were seen waiting.
    var waits: Int { state.withLock { $0.waits } }

    /// The greatest number of bodies that began while the same write was waiting.
    var mostBodies: Int { state.withLock { $0.mostBodies } }

    /// - Parameter write: The last completed write.
    func bodyBegins(after write: Int) throws {
      let isFree = try FileLock.tryAcquire(journal.number, path: journal.path)
      if isFree { FileLock.release(journal.number) }
      state.withLock { state in
        if state.done != write {
          state.done = write
          state.bodies = nil
        }
        if state.bodies == nil, !isFree {
          state.bodies = 0
          state.waits += 1
        }
        guard let bodies = state.bodies else { return }
        state.bodies = bodies + 1
        state.mostBodies = max(state.mostBodies, bodies + 1)
      }
    }
  }

  private func number(_ data: Data) -> Int { Int(String(decoding: data, as: UTF8.self)) ?? 0 }

  @Test("Readers on two engines never see a partial batch", arguments: Durability.allCases)
  func wholeBatches(_ durability: Durability) async throws {
    let engines = [try place.open(durability), try place.open(durability)]
    let keys = (0..<20).map { CacheKey(verbatim: "key-\($0)") }
    let isDone = Flag()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for reader in 0..<64 {
        group.addTask {
          let engine = engines[reader % 2]
          repeat {
            // A read may complete without suspending, and the pool has few threads.
            await Task.yield()
            let some = reader % 3 == 0 ? Array(keys.reversed()) : Array(keys.prefix(6))
            let values = try await engine.read(keys: some)
            #expect(Set(values).count <= 1 && [0, some.count].contains(values.count))
            if reader % 8 == 0 {
              let all = try await engine.readAllDataAndKeys()
              #expect(Set(all.map(\.data)).count <= 1 && [0, keys.count].contains(all.count))
              let count = try await engine.keyCount()
              #expect([0, keys.count].contains(count))
            }
          } while !isDone.isSet
        }
      }
      for round in 0..<30 {
        let engine = engines[round % 2]
        if round % 5 == 4 {
          try await engine.remove(keys: keys)
        } else {
          try await engine.write(keys.map { ($0, data("\(round)")) })
        }
      }
      isDone.set()
      try await group.waitForAll()
    }
  }

  @Test(
    "All entries that 64 tasks write through two engines are present, in an order that both engines agree on")
  func manyWriters() async throws {
    let engines = [try place.open(.process), try place.open(.process)]
    try await withThrowingTaskGroup(of: Void.self) { group in
      for task in 0..<64 {
        group.addTask {
          for number in 0..<10 {
            let engine = engines[(task + number) % 2]
            let key = CacheKey(verbatim: "\(task)/\(number)")
            switch number {
            case 3: try await engine.write([(key, data("\(task)")), ("shared", data("\(task)"))])
            case 7: try await engine.apply([.remove(key: "shared"), .write(data("\(task)"), key: key)])
            default: try await engine.write(data("\(task)"), key: key)
            }
            #expect(try await engines[task % 2].read(key: key) == data("\(task)"))
          }
        }
      }
      try await group.waitForAll()
    }
    try await engines[0].remove(key: "shared")
    let first = try await engines[0].readAllEntries()
    #expect(first == (try await engines[1].readAllEntries()))
    #expect(first.count == 640)
    for task in 0..<64 {
      let own = first.map(\.key.value).filter { $0.hasPrefix("\(task)/") }
      #expect(own == (0..<10).map { "\(task)/\($0)" })
    }
  }

  @Test("A key that is overwritten continuously is in every listing")
  func listing() async throws {
    let engine = try place.open(.process)
    let keys = Set((0..<50).map { CacheKey(verbatim: "k\($0)") })
    try await engine.write(keys.map { ($0, data("0")) })
    let isDone = Flag()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<4 {
        group.addTask {
          repeat {
            // A read may complete without suspending, and the pool has few threads.
            await Task.yield()
            let listed = try await engine.allKeys()
            #expect(Set(listed) == keys && listed.count == keys.count)
          } while !isDone.isSet
        }
      }
      for round in 0..<10 { for key in keys { try await engine.write(data("\(round)"), key: key) } }
      isDone.set()
      try await group.waitForAll()
    }
  }
}
