import Foundation
import StockroomCore
import StockroomKitSupport
import StockroomLayers
import StockroomMemory
import StockroomSQLite
import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

/// The last acknowledged number under each key.
private final class Acknowledged: Sendable {
  let numbers = MutexProtected([0, 0, 0])
}

/// Lets a transaction escape from its body, which is a programming error.
private final class Kept: @unchecked Sendable {
  // Safe to share: written by the body, and read only after the body has returned.
  private(set) var transaction: (any StorageTransaction)?

  func keep(_ transaction: any StorageTransaction) { self.transaction = transaction }
}

@Suite("Values cached in front of an engine", .timeLimit(.minutes(60)))
struct CachedEngineTests {
  private let base = FailingStorageEngine(MemoryStorageEngine())
  private let key = CacheKey(verbatim: "k")
  private let value = Data("value".utf8)
  private let other = Data("other".utf8)

  /// The number of single reads of the engine below.
  private var readCount: Int { base.calls.count { $0.method == .read } }

  /// Reads until a value comes from the cache, which has subscribed to the feed by then.
  private func waitForSubscription(_ engine: some StorageEngine) async throws {
    var before = -1
    while readCount > before {
      before = readCount
      _ = try await engine.read(key: .init("first"))
      await Task.yield()
    }
  }

  @Test("A present value and an absent one are each read once")
  func keeps() async throws {
    try await base.write(value, key: key)
    let engine = base.cached(limit: .unlimited)
    try await waitForSubscription(engine)
    base.resetCalls()
    for _ in 0..<3 {
      #expect(try await engine.read(key: key) == value)
      #expect(try await engine.read(key: .init("absent")) == nil)
      #expect(try await engine.keyExists(key))
      #expect(try await engine.keyExists(.init("absent")) == false)
    }
    #expect(readCount == 2)
    #expect(base.calls.count { $0.method == .keyExists } == 0)
  }

  @Test("A written value or a removal is cached once it is acknowledged")
  func keepsWrites() async throws {
    let engine = base.cached(limit: .unlimited)
    try await waitForSubscription(engine)
    base.resetCalls()
    try await engine.write(value, key: key)
    #expect(try await engine.read(key: key) == value)
    try await engine.remove(key: key)
    #expect(try await engine.read(key: key) == nil)
    #expect(readCount == 0)
  }

  @Test("A write that fails, or whose acknowledgement is lost, leaves nothing in the cache")
  func failures() async throws {
    let engine = base.cached(limit: .unlimited)
    try await waitForSubscription(engine)
    try await engine.write(value, key: key)
    for (timing, found) in [(FailingStorageEngine.Timing.beforehand, value), (.afterwards, other)] {
      base.failCall(with: StorageError(.io, "Lost"), timing) { $0.isWrite }
      await #expect(throws: StorageError.self) { try await engine.write(other, key: key) }
      #expect(try await engine.read(key: key) == found)
    }
    base.failCall(with: StorageError(.io, "Away")) { $0.method == .read }
    try await engine.write([(key, value)])
    await #expect(throws: StorageError.self) { try await engine.read(key: key) }
    #expect(try await engine.read(key: key) == value)
  }

  @Test("During a write, reads go to the engine below and their results are not cached")
  func writesUnderWay() async throws {
    let engine = base.cached(limit: .unlimited)
    try await waitForSubscription(engine)
    try await engine.write(value, key: key)
    base.hold { $0.isWrite }
    async let write: Void = engine.write(other, key: key)
    try await base.waitForHeldCalls()
    #expect(try await engine.read(key: key) == value)
    base.release()
    try await write
    #expect(try await engine.read(key: key) == other)
  }

  @Test("The result of a read that began before a write is not cached after it")
  func readsUnderWay() async throws {
    try await base.write(value, key: key)
    let engine = base.cached(limit: .unlimited)
    try await waitForSubscription(engine)
    for change in [
      { try await engine.write(other, key: key) }, { try await engine.write([(key, other)]) },
      { try await engine.remove(key: key) }, { try await engine.remove(keys: [key]) },
      { try await engine.removeAllData() }, { try await engine.apply([.removeAll]) },
      { try await engine.apply([.write(other, key: key), .remove(key: .init("another"))]) },
      { try await base.write(other, key: key) },
    ] as [() async throws -> Void] {
      try await engine.write([(key, value)])
      base.hold { $0.method == .read }
      async let old = engine.read(key: key)
      try await base.waitForHeldCalls()
      try await change()
      base.release()
      _ = try await old
      #expect(try await engine.read(key: key) == base.read(key: key))
    }
  }

  @Test("Every kind of change removes the old value from the cache")
  func changes() async throws {
    let engine = base.cached(limit: .unlimited)
    try await waitForSubscription(engine)
    let entry = StorageEntry(key: key, data: other, createdAt: .now, updatedAt: .now)
    for change in [
      { try await engine.write([(key, other)]) }, { try await engine.remove(keys: [key]) },
      { try await engine.removeAllData() }, { try await engine.apply([.removeAll]) },
      { try await engine.apply([.write(other, key: key), .remove(key: .init("another"))]) },
      { try await engine.writeEntries([entry]) },
      { try await engine.withTransaction { try $0.writeEntry(entry) } },
      { try await engine.withTransaction { try $0.write(other, key: key) } },
      { try await engine.withTransaction { try $0.remove(key: key) } },
      { try await engine.withTransaction { try $0.removeAll() } },
      { try await base.remove(key: key) }, { try await base.removeAllData() },
    ] as [() async throws -> Void] {
      try await engine.write(value, key: key)
      #expect(try await engine.read(key: key) == value)
      try await change()
      #expect(try await engine.read(key: key) == base.read(key: key))
    }
  }

  @Test("A write of another engine is visible once the feed has reported it")
  func others() async throws {
    let directory = try TemporaryDirectory()
    let engine = try SQLiteStorageEngine(directory: .init(url: directory.url)).cached(limit: .unlimited)
    let second = try SQLiteStorageEngine(directory: .init(url: directory.url))
    var changes = try await engine.changes().makeAsyncIterator()
    for number in 0..<20 {
      _ = try await engine.read(key: key)
      let value = Data("\(number)".utf8)
      try await second.write(value, key: key)
      #expect(await changes.next() != nil)
      #expect(try await engine.read(key: key) == value)
    }
    // Also without waiting for an element of the feed.
    try await second.write(other, key: key)
    while try await engine.read(key: key) != other { await Task.yield() }
  }

  @Test("A write with an origin, such as a store's, is visible at once")
  func origin() async throws {
    let engine = base.cached(limit: .unlimited)
    try await waitForSubscription(engine)
    try await engine.write(value, key: key)
    let origin = ChangeOrigin()
    try await ChangeOrigin.$current.withValue(origin) { try await engine.write(other, key: key) }
    #expect(try await engine.read(key: key) == other)
  }

  @Test("Beyond the limit the most recently used values are kept")
  func limits() async throws {
    let keys = (0..<4).map { CacheKey(verbatim: "\($0)") }
    try await base.write(keys.map { ($0, Data(repeating: 1, count: 100)) })
    for limit in [CacheLimit(entries: 2), CacheLimit(bytes: 500)] {
      let engine = base.cached(limit: limit)
      try await waitForSubscription(engine)
      for key in keys { _ = try await engine.read(key: key) }
      base.resetCalls()
      for key in keys.reversed() { _ = try await engine.read(key: key) }
      #expect(base.calls.map(\.keys) == [[keys[1]], [keys[0]]])
    }
    let engine = base.cached(limit: CacheLimit(bytes: 99))
    for _ in 0..<2 { _ = try await engine.read(key: keys[0]) }
    #expect(base.calls.count { $0.keys == [keys[0]] && $0.method == .read } >= 3)
  }

  @Test("A limit in bytes also bounds the number of absent keys and empty values")
  func limitsAbsent() async throws {
    let keys = (0..<1_000).map { CacheKey(verbatim: "\($0)") }
    try await base.write(keys.prefix(500).map { ($0, Data()) })
    let engine = base.cached(limit: CacheLimit(bytes: 10_000))
    try await waitForSubscription(engine)
    for key in keys { _ = try await engine.read(key: key) }
    base.resetCalls()
    for key in keys.reversed() { _ = try await engine.read(key: key) }
    #expect(900..<1_000 ~= readCount)
  }

  @Test(
    "In front of a layer with its own feed, acknowledged writes are visible, and closed engines throw"
  )
  func mappedFeeds() async throws {
    let layers: [any StorageEngine] = [
      try MemoryStorageEngine().namespaced("n"), try MemoryStorageEngine().checksummedWithInventory(),
      MemoryStorageEngine().cached(limit: .unlimited),
    ]
    for layer in layers { try await readsNothingOld(layer) }
    let error = await #expect(throws: StorageError.self) {
      let layer = try MemoryStorageEngine().namespaced("n")
      let engine = layer.cached(limit: .unlimited)
      for _ in 0..<2 { _ = try await engine.read(key: key) }
      try await layer.close()
      _ = try await engine.read(key: key)
    }
    #expect(error?.code == .closed)
  }

  private func readsNothingOld(_ layer: some StorageEngine) async throws {
    let engine = layer.cached(limit: .unlimited)
    for number in 0..<100 {
      let value = Data("\(number)".utf8)
      try await layer.write(value, key: key)
      #expect(try await engine.read(key: key) == value)
    }
  }

  @Test("Reads do not wait for the subscription, and are not cached before it has begun")
  func subscribesMeanwhile() async throws {
    try await base.write(value, key: key)
    let engine = base.cached(limit: .unlimited)
    base.hold { $0.method == .changes }
    for _ in 0..<3 { #expect(try await engine.read(key: key) == value) }
    #expect(readCount == 3)
    try await base.waitForHeldCalls()
    base.release()
    try await waitForSubscription(engine)
  }

  @Test("Without a feed nothing is cached; a failed subscription is retried")
  func feed() async throws {
    struct WithoutFeed: StorageLayer {
      let base: FailingStorageEngine
      func changes() async throws -> StorageChanges { throw StorageError(.unsupported, "No feed") }
    }
    let blind = WithoutFeed(base: base).cached(limit: .unlimited)
    for _ in 0..<100 { _ = try await blind.read(key: key) }
    #expect(readCount == 100)

    base.resetCalls()
    base.failCall(with: StorageError(.unavailable, "Away")) { $0.method == .changes }
    try await waitForSubscription(base.cached(limit: .unlimited))
    #expect(base.calls.count { $0.method == .changes } == 2)
  }

  @Test("A transaction used after its end does not prevent caching")
  func usedAfterItsEnd() async throws {
    let engine = base.cached(limit: .unlimited)
    try await waitForSubscription(engine)
    let (kept, entry) = (Kept(), StorageEntry(key: key, data: other, createdAt: .now, updatedAt: .now))
    try await engine.withTransaction { kept.keep($0) }
    let transaction = try #require(kept.transaction)
    try await engine.write(value, key: key)
    let misuses: [() throws -> Void] = [
      { try transaction.removeAll() }, { try transaction.remove(key: key) },
      { try transaction.write(other, key: key) }, { try transaction.writeEntry(entry) },
    ]
    for misuse in misuses {
      #expect(throws: StorageError.self) { try misuse() }
      try await engine.write(value, key: key)
      base.resetCalls()
      #expect(try await engine.read(key: key) == value)
      #expect(readCount == 0)
    }
  }

  @Test("A closed engine returns nothing from the cache", arguments: [true, false])
  func close(throughCache: Bool) async throws {
    let engine = base.cached(limit: .unlimited)
    try await waitForSubscription(engine)
    try await engine.write(value, key: key)
    _ = try await engine.read(key: key)
    try await throughCache ? engine.close() : base.close()
    let error = await #expect(throws: StorageError.self) { try await engine.read(key: key) }
    #expect(error?.code == .closed)
  }

  @Test("With concurrent tasks, no read returns a value older than one acknowledged before it")
  func concurrent() async throws {
    let memory = MemoryStorageEngine()
    let engine = memory.cached(limit: CacheLimit(entries: 2))
    let keys = (0..<3).map { CacheKey(verbatim: "\($0)") }
    let acknowledged = Acknowledged()
    @Sendable func number(_ data: Data?) -> Int {
      data.flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0
    }
    try await withThrowingTaskGroup { group in
      for (index, key) in keys.enumerated() {
        group.addTask {
          for next in 1...1_500 {
            let data = Data("\(next)".utf8)
            switch next % 4 {
            case 0: try await memory.write(data, key: key)
            case 1: try await engine.write([(key, data)])
            case 2: try await engine.withTransaction { try $0.write(data, key: key) }
            default: try await engine.write(data, key: key)
            }
            acknowledged.numbers.withLock { $0[index] = next }
          }
        }
        for _ in 0..<2 {
          group.addTask {
            var last = 0
            while last < 1_500 {
              let least = max(last, acknowledged.numbers.withLock { $0[index] })
              last = number(try await engine.read(key: key))
              if last < least {
                Issue.record("\(last) was read after \(least).")
                return
              }
              await Task.yield()
            }
          }
        }
      }
      try await group.waitForAll()
    }
  }
}
