@testable import ConformanceKit
import Dispatch
import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines whose calls wait for the body of a transaction, or whose bodies block the threads of their callers.

extension FaultyEngineCase {
  static let ofWaiting: [FaultyEngineCase] =
    WaitsOnItsCallersThread.Call.allCases.map { call in
      FaultyEngineCase(
        .t5, "\(call.rawValue) wait for a body on the threads of their callers", also: [.t1, .c1, .c5, .o3],
        claiming: claimsOfTransactions, stallTimeout: .seconds(3)
      ) { WaitsOnItsCallersThread(base: $0, call) }
    } + [
      inMemory(.t5, "keeps readers out while a body runs", also: [.t1], stallTimeout: .seconds(3)) {
        KeepsReadersOut(base: $0)
      },
      inMemory(
        .t5, "keeps readers out while a write waits for a body", also: [.t1], stallTimeout: .seconds(3)
      ) { PrefersWriters(base: $0) },
      .init(
        persistent: .t5, "keeps readers of other engines out while a body runs", also: [.t1],
        claiming: ReferenceEngine.promises.union(.transactions), stallTimeout: .seconds(3)
      ) { base, place in KeepsOthersOut(base: base, place: place) },
      inMemory(.t5, "runs bodies on the thread of its caller", stallTimeout: .seconds(3)) {
        RunsBodiesAtOnce(base: $0)
      },
      inMemory(.t5, "keeps readers of some entries out while a body runs", stallTimeout: .seconds(3)) {
        KeepsReadersOut(base: $0, ofEntries: true)
      },
      inMemory(
        .t3, "has forty places for bodies, which those that throw keep", also: [.t1, .t4],
        stallTimeout: .seconds(5)
      ) {
        KeepsPlacesOfThrownBodies(base: $0)
      },
      inMemory(
        .t5, "writes when no transaction has come for a while", also: [.t1, .c4], stallTimeout: .seconds(3)
      ) {
        PrefersTransactions(base: $0)
      },
    ]
}

/// Holds a lock while a body runs. One kind of call blocks its thread until the lock is released.
final class WaitsOnItsCallersThread: FaultyBatchEngine {
  enum Call: String, CaseIterable, Sendable { case writes, batches, transactions, closings }
  let base: ReferenceEngine
  private let call: Call
  private let lock = DispatchSemaphore(value: 1)
  init(base: ReferenceEngine, _ call: Call) { (self.base, self.call) = (base, call) }

  private func waitOnThisThread() { lock.wait() }

  /// Waits on a separate thread, except in this kind of call.
  private func enter(_ kind: Call) async {
    if call == kind { return waitOnThisThread() }
    await withCheckedContinuation { continuation in
      Thread.detachNewThread { [lock] in
        lock.wait()
        continuation.resume()
      }
    }
  }

  func write(_ data: Data, key: CacheKey) async throws {
    await enter(.writes)
    defer { lock.signal() }
    try await base.write(data, key: key)
  }

  func apply(_ operations: [StorageOperation]) async throws {
    await enter(.batches)
    defer { lock.signal() }
    try await base.apply(operations)
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    await enter(.transactions)
    defer { lock.signal() }
    return try await base.withTransaction(body)
  }

  func close() async throws {
    await enter(.closings)
    defer { lock.signal() }
    try await base.close()
  }
}

// MARK: - Long bodies

/// Makes reads wait for running bodies: all of them, or only `readEntries(keys:)`.
final class KeepsReadersOut: InterceptingEngine {
  let base: ReferenceEngine
  private let areOfEntries: Bool
  private let running = MutexProtected(0)
  init(base: ReferenceEngine, ofEntries areOfEntries: Bool = false) {
    (self.base, self.areOfEntries) = (base, areOfEntries)
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    running.withLock { $0 += 1 }
    defer { running.withLock { $0 -= 1 } }
    return try await base.withTransaction(body)
  }
  private func waitForBodies() async throws {
    while running.withLock({ $0 > 0 }) { try await Task.sleep(for: .milliseconds(1)) }
  }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await waitForBodies()
    return try await base.readEntries(keys: keys)
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    if !isChange, !areOfEntries { try await waitForBodies() }
    return try await work()
  }
}

/// Has one lock, which readers and bodies share. A write waits for the running bodies, and new readers wait for the
/// write.
final class PrefersWriters: InterceptingEngine {
  private struct State {
    var last = 0
    var bodies: Set<Int> = []
    /// The writes that wait.
    var writes: Set<Int> = []
  }
  let base: ReferenceEngine
  private let state = MutexProtected(State())
  init(base: ReferenceEngine) { self.base = base }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let number = state.withLock { state in
      state.last += 1
      state.bodies.insert(state.last)
      return state.last
    }
    defer { state.withLock { _ = $0.bodies.remove(number) } }
    return try await base.withTransaction(body)
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    guard isChange else {
      let writes = state.withLock { $0.writes }
      while !state.withLock({ $0.writes.isDisjoint(with: writes) }) {
        try await Task.sleep(for: .milliseconds(1))
      }
      return try await work()
    }
    let (number, bodies) = state.withLock { state in
      state.last += 1
      if !state.bodies.isEmpty { state.writes.insert(state.last) }
      return (state.last, state.bodies)
    }
    defer { state.withLock { _ = $0.writes.remove(number) } }
    while !state.withLock({ $0.bodies.isDisjoint(with: bodies) }) {
      try await Task.sleep(for: .milliseconds(1))
    }
    return try await work()
  }
}

/// Locks its place while a body runs. Its own readers need no lock; those of other engines wait for it.
final class KeepsOthersOut: InterceptingEngine {
  /// The engines in which bodies run, by place.
  private static let holders = MutexProtected<[String: [Int]]>([:])
  let base: ReferenceEngine
  private let place: String
  private let number = EngineNumbers.next()
  init(base: ReferenceEngine, place: URL) { (self.base, self.place) = (base, place.path) }

  private var isLockedByAnother: Bool {
    Self.holders.withLock { [place, number] holders in
      (holders[place] ?? []).contains { $0 != number }
    }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    Self.holders.withLock { [place, number] in $0[place, default: []].append(number) }
    defer {
      Self.holders.withLock { [place, number] holders in
        let index = holders[place]?.firstIndex(of: number)
        if let index { holders[place]?.remove(at: index) }
      }
    }
    return try await base.withTransaction(body)
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    while !isChange, isLockedByAnother { try await Task.sleep(for: .milliseconds(1)) }
    return try await work()
  }
}

/// Runs bodies on the caller's thread.
struct RunsBodiesAtOnce: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try Task.checkCancellation()
    return try base.transact(body)
  }
}

/// Makes changes wait until no transaction has begun for 200 ms.
final class PrefersTransactions: InterceptingEngine {
  let base: ReferenceEngine
  private let last = MutexProtected<ContinuousClock.Instant?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    last.withLock { $0 = .now }
    return try await base.withTransaction(body)
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    while isChange, let last = last.withLock({ $0 }), ContinuousClock.now - last < .milliseconds(200) {
      try await Task.sleep(for: .milliseconds(5))
    }
    return try await work()
  }
}

/// Runs forty bodies at a time at most, and counts one that throws as running for ever.
struct KeepsPlacesOfThrownBodies: FaultyEngine {
  let base: ReferenceEngine
  private let places = AsyncSemaphore(width: 40)
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    await places.enter()
    let result = try await base.withTransaction(body)
    places.leave()
    return result
  }
}
