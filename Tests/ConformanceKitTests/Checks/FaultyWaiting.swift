import ConformanceKit
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
      inMemory(.t5, "runs bodies on the thread of its caller", stallTimeout: .seconds(3)) {
        RunsBodiesAtOnce(base: $0)
      },
      inMemory(.t5, "keeps readers of some entries out while a body runs", stallTimeout: .seconds(3)) {
        KeepsReadersOut(base: $0, ofEntries: true)
      },
      inMemory(
        .t5, "writes when no transaction has come for a while", also: [.t1, .c4], stallTimeout: .seconds(3)
      ) {
        PrefersTransactions(base: $0)
      },
    ]
}

/// Holds a lock while a body runs. Some of its calls block their threads until it is released.
final class WaitsOnItsCallersThread: FaultyBatchEngine {
  enum Call: String, CaseIterable, Sendable { case writes, batches, transactions, closings }
  let base: ReferenceEngine
  private let call: Call
  private let lock = DispatchSemaphore(value: 1)
  init(base: ReferenceEngine, _ call: Call) { (self.base, self.call) = (base, call) }

  private func waitOnThisThread() { lock.wait() }

  /// Waits on a separate thread except for these calls.
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

/// Makes readers wait for the running bodies: for all of them, or for those that use the same entries.
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

/// Makes single calls wait until no transactions are left.
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
