@testable import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines that handle their own calls correctly, but not those of another engine on their place.

/// Assigns each engine a number.
enum EngineNumbers {
  private static let last = AtomicCounter()

  static func next() -> Int { last.increment() }
}

/// When a body throws, removes what bodies of other engines have written since it began.
final class TakesBackOthers: FaultyEngine {
  private final class RecordingTransaction: ForwardingTransaction {
    private(set) var keys: [CacheKey] = []
    override func write(_ data: Data, key: CacheKey) throws {
      try base.write(data, key: key)
      keys.append(key)
    }
  }
  private static let written = MutexProtected<[String: [(engine: Int, key: CacheKey)]]>([:])
  let base: ReferenceEngine
  private let place: String
  private let number = EngineNumbers.next()
  init(base: ReferenceEngine, place: URL) { (self.base, self.place) = (base, place.path) }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let start = Self.written.withLock { [place] in $0[place]?.count ?? 0 }
    let keys = MutexProtected<[CacheKey]>([])
    let result: Result
    do {
      result = try await base.withTransaction { transaction in
        let noting = RecordingTransaction(transaction)
        let value = try body(noting)
        let noted = noting.keys
        keys.withLock { $0 = noted }
        return value
      }
    } catch {
      // Lets other engines write meanwhile, as reading a journal would.
      for _ in 0..<20 { await Task.yield() }
      let others = Self.written.withLock { [place, number] written in
        (written[place] ?? []).dropFirst(start).filter { $0.engine != number }.map(\.key)
      }
      if !others.isEmpty { try await base.remove(keys: others) }
      throw error
    }
    let new = keys.withLock { $0 }.map { (engine: number, key: $0) }
    Self.written.withLock { [place] in $0[place, default: []] += new }
    return result
  }
}

/// Serializes the changes of all engines on a place, and never leaves the semaphore after a call that was cancelled
/// while another engine held it.
final class KeepsTurnsOfPlaces: InterceptingEngine {
  private final class Place: Sendable {
    let turns = AsyncSemaphore(width: 1)
    /// The number of the engine that holds the semaphore; 0 if none does.
    let owner = MutexProtected(0)
  }
  private static let places = MutexProtected<[String: Place]>([:])
  let base: ReferenceEngine
  private let place: Place
  private let number = EngineNumbers.next()
  init(base: ReferenceEngine, place: URL) {
    self.base = base
    self.place = Self.places.withLock { places in
      let known = places[place.path] ?? Place()
      places[place.path] = known
      return known
    }
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    guard isChange else { return try await work() }
    let owner = place.owner.withLock { $0 }
    await place.turns.enter()
    if owner != 0, owner != number, Task.isCancelled { throw CancellationError() }
    place.owner.withLock { $0 = number }
    defer {
      place.owner.withLock { $0 = 0 }
      place.turns.leave()
    }
    return try await work()
  }
}
