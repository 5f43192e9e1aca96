import Foundation
import StockroomCore
import StockroomKitSupport
import StockroomMemory
import StockroomStore
import Testing

@Suite("PersistentCache: random calls against a model", .timeLimit(.minutes(60)))
struct PersistentCacheModelTests {
  /// The way in which every change of the engine fails.
  enum Fault: CaseIterable, Sendable {
    case none, before, after
  }

  @Test("With a failing engine every read returns the model's value", arguments: 1...8 as ClosedRange<UInt64>)
  func unlimited(seed: UInt64) async throws {
    var run = Run(seed: seed, memoryLimit: .unlimited)
    try await run.perform(300)
  }

  @Test(
    "With a failing engine and a small memory limit no older value reappears",
    arguments: 1...8 as ClosedRange<UInt64>)
  func limited(seed: UInt64) async throws {
    var run = Run(seed: seed, memoryLimit: CacheLimit(entries: 2))
    try await run.perform(300)
  }

  private struct Run {
    let keys = Array(0..<6)
    let engine = HookedEngine()
    let cache: PersistentCache<Int, Int>
    let mayEvict: Bool
    let seed: UInt64
    var random: SeededRandom
    /// The expected value of each key. An absent key has no value in the cache.
    var model: [Int: Int] = [:]

    init(seed: UInt64, memoryLimit: CacheLimit) {
      self.seed = seed
      random = SeededRandom(seed: seed)
      mayEvict = memoryLimit != .unlimited
      cache = PersistentCache(storage: engine, memoryLimit: memoryLimit)
    }

    mutating func perform(_ steps: Int) async throws {
      for step in 1...steps {
        setFault(Fault.allCases[random.next(upTo: 5) % 3])
        try await call(value: step)
        for key in keys { try await compare(key, [model[key]], step) }
      }
      setFault(.none)
      // The first call may throw the failures so far. The second one retries the failed writes.
      do { try await cache.sync() } catch {}
      try await cache.sync()
      let other = PersistentCache<Int, Int>(storage: engine.base)
      for key in keys {
        try await compare(key, [model[key]], steps)
        #expect(try await other[key] == model[key], "seed \(seed), key \(key), in storage")
      }
      cache.clearMemoryCache()
      for key in keys { try await compare(key, [model[key]], steps) }
    }

    private func setFault(_ fault: Fault) {
      engine.beforeChange(nil)
      engine.afterChange(nil)
      switch fault {
      case .none: break
      case .before: engine.beforeChange { _ in throw StorageError(.diskFull, "No space.") }
      case .after: engine.afterChange { throw StorageError(.io, "The acknowledgement is lost.") }
      }
    }

    private mutating func call(value: Int) async throws {
      let (cache, keys) = (cache, keys)
      let key = keys[random.next(upTo: keys.count)]
      switch random.next(upTo: 12) {
      case 0..<4:
        cache[key] = value
        model[key] = value
      case 4:
        cache[key] = nil
        model[key] = nil
      case 5..<8:
        try await change([key], to: value, at: value) { try await cache.store(value, forKey: key) }
      case 8:
        try await change([key], to: nil, at: value) { try await cache.removeValue(forKey: key) }
      case 9:
        try await change(keys, to: nil, at: value) { try await cache.removeAll() }
      case 10: do { try await cache.sync() } catch {}
      default: cache.clearMemoryCache()
      }
    }

    /// Makes a change that takes effect if it returns, and may take effect if it throws.
    private mutating func change(
      _ keys: [Int], to value: Int?, at step: Int, _ body: () async throws -> Void
    ) async throws {
      do {
        try await body()
        for key in keys { model[key] = value }
      } catch {
        for key in keys { try await compare(key, [model[key], value], step) }
      }
    }

    /// Reads a key, expects one of the allowed values, and updates the model with it.
    private mutating func compare(_ key: Int, _ allowed: [Int?], _ step: Int) async throws {
      let value = try await cache[key]
      // A value evicted before it could be written is lost.
      let isAllowed = allowed.contains(value) || mayEvict && value == nil
      try #require(isAllowed, "seed \(seed), step \(step), key \(key): \(value as Any) is not in \(allowed)")
      model[key] = value
    }
  }
}
