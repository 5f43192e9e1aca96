import Dispatch
import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

@Suite("PersistentCache: fetch", .timeLimit(.minutes(10)))
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

  @Test("A loader's error is thrown by all waiting calls, and is not kept")
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

  @Test("Cancelling the caller whose loader runs does not cancel the load")
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

  @Test("When all waiting calls are cancelled the load is too, and the next call starts a new one")
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

  @Test("A task that is cancelled already loads nothing")
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

  @Test(
    "A value that was loaded before its key changed is not kept",
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

  @Test("A storage that fails is not a miss: the loader does not run", arguments: AnyEngine.all)
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

  @Test("A loader has the highest priority of its waiters")
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

  @Test("Loaders that fetch each other's keys do not wait for each other")
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
    // One of them loads for itself what the other is about to load.
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

  @Test("Loaders that fetch each other's keys without end throw", .timeLimit(.minutes(10)))
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
  func storm() async throws {
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

@Suite("PersistentCache: callbacks", .timeLimit(.minutes(10)))
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
