import Dispatch
import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

private let isMain = DispatchSpecificKey<Bool>()

@Suite("PersistentCache: concurrency", .timeLimit(.minutes(60)))
struct PersistentCacheConcurrencyTests {
  @Test("Each of a hundred tasks reads what it stored, while entries are evicted", arguments: AnyEngine.all)
  func model(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    let cache = PersistentCache<[Int], Int>(storage: storage, memoryLimit: CacheLimit(entries: 40))
    let models = try await withThrowingTaskGroup(of: [[Int]: Int].self) { group in
      for task in 0..<100 {
        group.addTask {
          var model: [[Int]: Int] = [:]
          for step in 0..<60 {
            let key = [task, Int.random(in: 0..<5)]
            switch Int.random(in: 0..<20) {
            case 0..<7:
              cache[key] = step
              model[key] = step
            case 7, 8:
              cache[key] = nil
              model[key] = nil
            case 9:
              try await cache.store(step, forKey: key)
              model[key] = step
            case 10:
              try await cache.removeValue(forKey: key)
              model[key] = nil
            case 11:
              let value = try await cache.fetch(key) { -step }
              #expect(value == model[key] ?? -step)
              model[key] = value
            case 12: cache.clearMemoryCache()
            case 13 where step % 10 == 0: try await cache.sync()
            default: #expect(try await cache[key] == model[key])
            }
          }
          return model
        }
      }
      return try await group.reduce(into: [:]) { $0.merge($1) { $1 } }
    }
    try await cache.sync()
    let fresh = PersistentCache<[Int], Int>(storage: storage)
    for task in 0..<100 {
      for number in 0..<5 {
        #expect(try await fresh[[task, number]] == models[[task, number]])
        #expect(try await cache[[task, number]] == models[[task, number]])
      }
    }
    #expect(try await storage.keyCount() == models.count)
  }

  @Test("No task reads an older value after a newer one", arguments: [true, false])
  func monotonic(isAssigned: Bool) async throws {
    let cache = PersistentCache<String, Int>(
      storage: MemoryStorageEngine(), memoryLimit: CacheLimit(entries: 1))
    let isDone = Shared(false)
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask {
        for number in 1...2_000 {
          if isAssigned { cache["key"] = number } else { try await cache.store(number, forKey: "key") }
          if number % 7 == 0 { cache.clearMemoryCache() }
          await Task.yield()
        }
        isDone.withLock { $0 = true }
      }
      for reader in 0..<8 {
        group.addTask {
          var latest = 0
          while !isDone.withLock({ $0 }) {
            let value = try await cache["key"] ?? 0
            #expect(value >= latest)
            latest = max(latest, value)
            if reader == 0 { cache.clearMemoryCache() }
            if reader == 1 { _ = try await cache["other"] }
            await Task.yield()
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(try await cache["key"] == 2_000)
  }

  @Test(
    "A slow read does not restore an old value",
    arguments: ["assign", "assign nil", "store", "removeValue", "removeAll"])
  func slowRead(change: String) async throws {
    let storage = HookedEngine()
    try await PersistentCache<String, Int>(storage: storage).store(1, forKey: "key")
    let cache = PersistentCache<String, Int>(storage: storage)
    let (hasRead, mayReturn) = (Latch(), Latch())
    storage.afterRead { _ in
      hasRead.open()
      await mayReturn.wait()
    }
    let slow = Task { try await cache["key"] }
    await hasRead.wait()
    storage.afterRead(nil)

    var expected: Int? = nil
    switch change {
    case "assign":
      cache["key"] = 2
      expected = 2
    case "assign nil": cache["key"] = nil
    case "store":
      try await cache.store(2, forKey: "key")
      expected = 2
    case "removeValue": try await cache.removeValue(forKey: "key")
    default: try await cache.removeAll()
    }
    try await cache.sync()
    cache.clearMemoryCache()
    mayReturn.open()
    #expect(try await slow.value == 1)
    #expect(try await cache["key"] == expected)
  }

  @Test("A read that begins during a store does not cache the old value")
  func readDuringStore() async throws {
    let storage = HookedEngine()
    let cache = PersistentCache<String, Int>(storage: storage)
    try await cache.store(1, forKey: "key")
    let (writing, mayWrite, written, mayAcknowledge) = (Latch(), Latch(), Latch(), Latch())
    let (hasRead, mayReturn) = (Latch(), Latch())
    storage.beforeChange { _ in
      writing.open()
      await mayWrite.wait()
    }
    storage.afterChange {
      written.open()
      await mayAcknowledge.wait()
    }
    storage.afterRead { _ in
      hasRead.open()
      await mayReturn.wait()
    }
    let store = Task { try await cache.store(2, forKey: "key") }
    await writing.wait()
    #expect(try await cache["key"] == 1)
    cache.clearMemoryCache()
    let slow = Task { try await cache["key"] }
    await hasRead.wait()
    storage.afterRead(nil)
    mayWrite.open()
    await written.wait()
    #expect(try await cache["key"] == 2)
    mayReturn.open()
    #expect(try await slow.value == 1)
    #expect(try await cache["key"] == 2)
    mayAcknowledge.open()
    try await store.value
    #expect(try await cache["key"] == 2)
  }

  @Test("An assignment during a write of its key is written after it")
  func assignedDuringWrite() async throws {
    let storage = HookedEngine()
    let cache = PersistentCache<String, Int>(storage: storage)
    let (writing, mayWrite) = (Latch(), Latch())
    storage.beforeChange { _ in
      writing.open()
      await mayWrite.wait()
    }
    cache["key"] = 1
    await writing.wait()
    cache["key"] = 2
    cache["key"] = 3
    #expect(try await cache["key"] == 3)
    mayWrite.open()
    try await cache.sync()
    #expect(try await cache["key"] == 3)
    cache.clearMemoryCache()
    #expect(try await cache["key"] == 3)
  }

  @Test("An assignment during a store of its key is kept")
  func assignedDuringStore() async throws {
    let storage = HookedEngine()
    let cache = PersistentCache<String, Int>(storage: storage)
    let (storing, mayStore, mayWrite) = (Latch(), Latch(), Latch())
    let writes = Shared(0)
    storage.beforeChange { _ in
      let isFirst = writes.withLock { writes in
        writes += 1
        return writes == 1
      }
      storing.open()
      await (isFirst ? mayStore : mayWrite).wait()
    }
    let store = Task { try await cache.store(1, forKey: "key") }
    await storing.wait()
    cache["key"] = 2
    mayStore.open()
    try await store.value
    #expect(try await cache["key"] == 2)
    mayWrite.open()
    try await cache.sync()
    cache.clearMemoryCache()
    #expect(try await cache["key"] == 2)
  }

  @Test("removeAll removes earlier assignments and keeps later ones", arguments: AnyEngine.all)
  func removeAllInBetween(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let cache = PersistentCache<Int, Int>(storage: try await engine.open(directory))
    for round in 0..<20 {
      for key in 0..<50 { cache[key] = round }
      try await cache.removeAll()
      for key in 50..<60 { cache[key] = round }
      for key in 0..<50 { #expect(try await cache[key] == nil) }
      cache.clearMemoryCache()
      for key in 50..<60 { #expect(try await cache[key] == round) }
    }
  }

  @Test("Stores of concurrent tasks are combined into few batches")
  func storesTogether() async throws {
    let storage = HookedEngine()
    let batches = Shared(0)
    let (writing, mayWrite) = (Latch(), Latch())
    storage.beforeChange { _ in
      batches.withLock { $0 += 1 }
      writing.open()
      await mayWrite.wait()
    }
    let cache = PersistentCache<Int, Int>(storage: storage)
    cache[-1] = -1
    await writing.wait()
    let started = Shared(0)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for key in 0..<500 {
        group.addTask {
          started.withLock { $0 += 1 }
          try await cache.store(key, forKey: key)
        }
      }
      while started.withLock({ $0 }) < 500 { await Task.yield() }
      mayWrite.open()
      try await group.waitForAll()
    }
    #expect(batches.withLock { $0 } < 100)
    for key in 0..<500 { #expect(try await cache[key] == key) }
  }

  @Test("A cancelled store has no effect, and a cancelled read loses nothing")
  func cancelled() async throws {
    let cache = PersistentCache<Int, Int>(storage: MemoryStorageEngine())
    let task = Task {
      while !Task.isCancelled { await Task.yield() }
      await #expect(throws: CancellationError.self) { try await cache.store(1, forKey: 1) }
      await #expect(throws: CancellationError.self) { try await cache.removeAll() }
      await #expect(throws: CancellationError.self) { try await cache.sync() }
      cache[2] = 2
    }
    task.cancel()
    await task.value
    #expect(try await cache[1] == nil)
    #expect(try await cache[2] == 2)
    try await cache.sync()
    cache.clearMemoryCache()
    #expect(try await cache[2] == 2)
  }

  @Test("The cache can be used from the main actor, and encodes elsewhere")
  @MainActor
  func mainActor() async throws {
    DispatchQueue.main.setSpecific(key: isMain, value: true)
    #expect(DispatchQueue.getSpecific(key: isMain) == true)
    struct MainQueueAvoidingValue: Codable, Sendable, Equatable {
      var number: Int
      init(_ number: Int) { self.number = number }
      init(from decoder: any Decoder) throws {
        #expect(DispatchQueue.getSpecific(key: isMain) == nil)
        number = try decoder.singleValueContainer().decode(Int.self)
      }
      func encode(to encoder: any Encoder) throws {
        #expect(DispatchQueue.getSpecific(key: isMain) == nil)
        var container = encoder.singleValueContainer()
        try container.encode(number)
      }
    }
    let cache = PersistentCache<Int, MainQueueAvoidingValue>(storage: MemoryStorageEngine())
    cache[1] = MainQueueAvoidingValue(1)
    #expect(try await cache[1] == MainQueueAvoidingValue(1))
    try await cache.sync()
    try await cache.store(MainQueueAvoidingValue(2), forKey: 2)
    cache.clearMemoryCache()
    #expect(try await cache[1] == MainQueueAvoidingValue(1))
    #expect(try await cache.fetch(2) { MainQueueAvoidingValue(3) } == MainQueueAvoidingValue(2))
  }
}
