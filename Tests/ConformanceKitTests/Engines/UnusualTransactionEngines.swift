import FaultyEngineWorker
import Foundation
import StockroomCore

// Correct engines with unusual transactions.

/// Does not wait for bodies when it is closed. Later calls in a body throw `closed`, and none of its changes take
/// effect.
final class EndsBodiesWhenClosed: FaultyEngine {
  let base: ReferenceEngine
  private let isClosed = MutexProtected(false)
  init(base: ReferenceEngine) { self.base = base }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { [self] transaction in
      try body(TransactionOfOpenEngine(transaction) { try self.validateOpen() })
    }
  }

  func close() async throws {
    isClosed.withLock { $0 = true }
    try await base.close()
  }

  private func validateOpen() throws {
    if isClosed.withLock({ $0 }) { throw StorageError(.closed, "The engine has been closed.") }
  }
}

/// Runs one body after the other, whatever its place, because all engines share a queue.
struct SharesAQueueOfBodies: FaultyEngine {
  let base: ReferenceEngine
  let queue: Places

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    await queue.enter()
    defer { queue.leave() }
    return try await base.withTransaction(body)
  }
}

/// A transaction whose calls are refused once the engine has been closed.
private final class TransactionOfOpenEngine: StorageTransaction {
  private let base: any StorageTransaction
  private let validate: () throws -> Void

  init(_ base: any StorageTransaction, validate: @escaping () throws -> Void) {
    (self.base, self.validate) = (base, validate)
  }

  private var open: any StorageTransaction {
    get throws {
      try validate()
      return base
    }
  }

  func read(key: CacheKey) throws -> Data? { try open.read(key: key) }
  func read(keys: [CacheKey]) throws -> [Data] { try open.read(keys: keys) }
  func keyExists(_ key: CacheKey) throws -> Bool { try open.keyExists(key) }
  func keyCount() throws -> Int { try open.keyCount() }
  func allKeys() throws -> [CacheKey] { try open.allKeys() }
  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    try open.scan(range, limit: limit)
  }
  func write(_ data: Data, key: CacheKey) throws { try open.write(data, key: key) }
  func writeEntry(_ entry: StorageEntry) throws { try open.writeEntry(entry) }
  func remove(key: CacheKey) throws { try open.remove(key: key) }
  func removeAll() throws { try open.removeAll() }
}
