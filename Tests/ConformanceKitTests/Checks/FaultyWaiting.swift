import ConformanceKit
import Dispatch
import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines whose calls wait for a body on the threads of their callers.

extension FaultyEngineCase {
  static let ofWaiting: [FaultyEngineCase] = WaitsOnItsCallersThread.Call.allCases.map { call in
    FaultyEngineCase(
      .t5, "\(call.rawValue) wait for a body on the threads of their callers", also: [.t1, .c1, .c5, .o3],
      claiming: claimsOfTransactions, stallTimeout: .seconds(3)
    ) { WaitsOnItsCallersThread(base: $0, call) }
  }
}

/// Has a lock that is kept while a body runs, for which some of its calls wait on the thread that they are made on.
final class WaitsOnItsCallersThread: FaultyBatchEngine {
  enum Call: String, CaseIterable, Sendable { case writes, batches, transactions, closings }
  let base: ReferenceEngine
  private let call: Call
  private let lock = DispatchSemaphore(value: 1)
  init(base: ReferenceEngine, _ call: Call) { (self.base, self.call) = (base, call) }

  private func waitOnThisThread() { lock.wait() }

  /// Waits on a thread of its own unless it is for these calls.
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
