import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

@Suite("PersistentCache: fetch", .timeLimit(.minutes(60)))
struct PersistentCacheFetchTests {
  typealias Cache = PersistentCache<String, Int>

  struct LoaderFailed: Error, Equatable {}

  @Test("A missing value is loaded once and kept", arguments: AnyEngine.all)
  func loads(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    let cache = Cache(storage: storage)
    #expect(try await cache.fetch("key") { 1 } == 1)
    #expect(try await cache.fetch("key", fallback: { 2 }) == 1)
    try await cache.sync()
    #expect(try await Cache(storage: storage).fetch("key") { 3 } == 1)
  }

  @Test("A thousand callers share one load", arguments: [true, false])
  func oneLoader(isStored: Bool) async throws {
    let cache = Cache(storage: isStored ? MemoryStorageEngine() : nil)
    let loads = Shared(0)
    let latch = Latch()
    try await withThrowingTaskGroup(of: Int.self) { group in
      for _ in 0..<1_000 {
        group.addTask {
          try await cache.fetch("key") {
            loads.withLock { $0 += 1 }
            await latch.wait()
            return 42
          }
        }
      }
      while loads.withLock({ $0 }) == 0 { await Task.yield() }
      latch.open()
      for try await value in group { #expect(value == 42) }
    }
    #expect(loads.withLock { $0 } == 1)
  }

  @Test("Loads of different keys run concurrently")
  func manyKeys() async throws {
    let cache = Cache(storage: nil)
    let started = Shared(0)
    let latch = Latch()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<100 {
        group.addTask {
          let value = try await cache.fetch("\(number)") {
            started.withLock { $0 += 1 }
            await latch.wait()
            return number
          }
          #expect(value == number)
        }
      }
      while started.withLock({ $0 }) < 100 { await Task.yield() }
      latch.open()
      try await group.waitForAll()
    }
  }

  @Test("A loader's error is thrown to all waiting calls, and is not cached")
  func loaderError() async throws {
    let cache = Cache(storage: MemoryStorageEngine())
    let latch = Latch()
    let loads = Shared(0)
    let waiting = Shared(0)
    await withTaskGroup(of: Bool.self) { group in
      for _ in 0..<100 {
        group.addTask {
          waiting.withLock { $0 += 1 }
          do {
            _ = try await cache.fetch("key") {
              loads.withLock { $0 += 1 }
              await latch.wait()
              throw LoaderFailed()
            }
            return false
          } catch {
            return error as? LoaderFailed == LoaderFailed()
          }
        }
      }
      while waiting.withLock({ $0 }) < 100 { await Task.yield() }
      latch.open()
      for await hasError in group { #expect(hasError) }
    }
    #expect(loads.withLock { $0 } < 100)
    #expect(try await cache["key"] == nil)
    #expect(try await cache.fetch("key") { 7 } == 7)
  }

  @Test(
    "A value loaded before its key changed is not kept",
    arguments: ["assign", "assign nil", "store", "removeValue", "removeAll"])
  func outdated(change: String) async throws {
    let cache = Cache(storage: MemoryStorageEngine())
    let (latch, started) = (Latch(), Latch())
    let slow = Task {
      try await cache.fetch("key") {
        started.open()
        await latch.wait()
        return 1
      }
    }
    await started.wait()
    switch change {
    case "assign": cache["key"] = 2
    case "assign nil": cache["key"] = nil
    case "store": try await cache.store(2, forKey: "key")
    case "removeValue": try await cache.removeValue(forKey: "key")
    default: try await cache.removeAll()
    }
    #expect(try await cache.fetch("key") { 2 } == 2)
    latch.open()
    #expect(try await slow.value == 1)
    #expect(try await cache["key"] == 2)
    try await cache.sync()
    cache.clearMemoryCache()
    #expect(try await cache["key"] == 2)
  }

  @Test("An expired value is loaded again, and a loaded value can expire")
  func expiry() async throws {
    let clock = ManualClock()
    let cache = Cache(storage: MemoryStorageEngine(), now: clock.now)
    for round in 0..<5 {
      #expect(try await cache.fetch("key", expiresIn: 60) { round } == round)
      clock.advance(by: 30)
      #expect(try await cache.fetch("key", expiresIn: 60) { -1 } == round)
      try await cache.sync()
      cache.clearMemoryCache()
      clock.advance(by: 30)
    }
  }

  @Test("A storage failure is not a miss: the loader does not run", arguments: AnyEngine.all)
  func storageFails(_ engine: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let storage = try await engine.open(directory)
    try await storage.close()
    let cache = Cache(storage: storage)
    let loads = Shared(0)
    #expect(
      await code {
        try await cache.fetch("key") {
          loads.withLock { $0 += 1 }
          return 1
        }
      } == .closed)
    #expect(loads.withLock { $0 } == 0)
  }

  @Test("A loader runs at the highest priority of its waiters")
  func priority() async throws {
    let cache = Cache(storage: nil)
    let started = Latch()
    let first = Task(priority: .background) {
      try await cache.fetch("key") {
        started.open()
        while Task.currentPriority < .userInitiated { await Task.yield() }
        return 1
      }
    }
    await started.wait()
    let second = Task(priority: .userInitiated) { try await cache.fetch("key") { 2 } }
    #expect(try await second.value == 1)
    #expect(try await first.value == 1)
  }

  @Test("Loaders that fetch each other's keys do not deadlock")
  func crossed() async throws {
    let (cache, other) = (Cache(storage: nil), Cache(storage: MemoryStorageEngine()))
    let (firstStarted, secondStarted) = (Latch(), Latch())
    async let first = cache.fetch("key") {
      firstStarted.open()
      await secondStarted.wait()
      return try await other.fetch("key") { 20 } + 1
    }
    async let second = other.fetch("key") {
      secondStarted.open()
      await firstStarted.wait()
      return try await cache.fetch("key") { 10 } + 2
    }
    // One of the loaders itself loads the key that the other is about to load.
    let values = try await (first, second)
    #expect(values == (23 - 10, 12) || values == (21, 23))
    #expect(try await cache["key"] == values.0)
    #expect(try await other["key"] == values.1)
  }

  @Test("A loader may fetch its own key with another loader")
  func ownKey() async throws {
    let cache = Cache(storage: nil)
    #expect(try await cache.fetch("key") { try await cache.fetch("key") { 1 } + 1 } == 2)
    #expect(try await cache["key"] == 2)
  }

  @Test("Endless recursion of loaders that fetch each other's keys throws", .timeLimit(.minutes(60)))
  func endless() async throws {
    let cache = Cache(storage: nil)
    @Sendable func load(_ number: Int) async throws -> Int {
      try await cache.fetch("\(number)") { try await load((number + 1) % 3) }
    }
    #expect(await code { try await load(0) } == .unsupported)
    async let results = [code { try await load(0) }, code { try await load(1) }]
    #expect(await results == [.unsupported, .unsupported])
    #expect(try await cache["0"] == nil)
    #expect(try await cache.fetch("0") { 1 } == 1)
  }

  @Test("With concurrent fetches, cancellations and changes every call returns")
  func concurrentFetchesAndChanges() async throws {
    let cache = Cache(storage: MemoryStorageEngine(), memoryLimit: CacheLimit(entries: 2))
    await withTaskGroup(of: Void.self) { group in
      for number in 0..<2_000 {
        group.addTask {
          let key = "\(number % 7)"
          let caller = Task {
            try await cache.fetch(key) {
              for _ in 0..<(number % 5) { await Task.yield() }
              if number % 11 == 0 { throw LoaderFailed() }
              return number % 7
            }
          }
          if number % 3 == 0 { caller.cancel() }
          if number % 5 == 0 { cache[key] = nil }
          switch await caller.result {
          case .success(let value): #expect(value == number % 7)
          case .failure(let error): #expect(error is LoaderFailed || error is CancellationError)
          }
        }
      }
    }
  }
}
