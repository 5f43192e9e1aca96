import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines with faulty transactions: in the reads of a body, or in its end. Transactions that interfere with each other
// are in FaultyIsolation.swift, and those that block others in FaultyWaiting.swift.

extension FaultyEngineCase {
  /// The capabilities that engines with transactions in memory claim.
  static let claimsOfTransactions: EngineCapabilities = [
    .atomicBatches, .snapshotReads, .orderedScans, .transactions,
  ]

  /// An engine of transactions in memory.
  static func inMemory(
    _ rule: ContractRule, _ name: String, also: Set<ContractRule> = [], stallTimeout: Duration = .seconds(60),
    makeEngine: @escaping @Sendable (ReferenceEngine) -> any StorageEngine
  ) -> FaultyEngineCase {
    FaultyEngineCase(
      rule, name, also: also, claiming: claimsOfTransactions, stallTimeout: stallTimeout,
      makeEngine: makeEngine)
  }

  static let ofTransactions: [FaultyEngineCase] =
    HidesOwnWrites.Kind.allCases.map { kind in
      inMemory(.t2, "hides own writes from \(kind)", also: [.t1, .t4]) {
        AltersTransactions(base: $0) { try HidesOwnWrites($0, kind) }
      }
    } + [
      inMemory(.t2, "finds what removeAll() has removed", also: [.t1, .t4]) {
        AltersTransactions(base: $0) { try HidesOwnWrites($0, .scan, afterRemoveAllOnly: true) }
      },
      inMemory(.t2, "scans all entries of a body up to less than none") {
        AltersTransactions(base: $0) { TakesNegativeForUnlimited($0) }
      },
      inMemory(.t2, "gives own writes out with the first of thousands of entries", also: [.t1, .t4]) {
        AltersTransactions(base: $0) { GivesOwnWritesFirst($0) }
      },
      inMemory(.t2, "overwrites what a body has removed and written") { OverwritesTheRemoved(base: $0) },
      inMemory(.t3, "commits what a body did before it threw", also: [.t1]) { CommitsThrownBodies(base: $0) },
      inMemory(.t1, "gives up transactions that it has done", also: [.t2, .t3, .t4, .t5, .c4]) {
        GivesUpTransactions(base: $0, afterwards: true)
      },
      inMemory(.t3, "throws an error of its own for a body's", also: [.t1, .t4]) { ReplacesErrors(base: $0) },
      inMemory(.t3, "takes a body's error for its own, and tries again") {
        TakesErrorsForItsOwn(base: $0)
      },
      inMemory(.t3, "takes back what others did when a body throws", also: [.t1]) {
        TakesBackTooMuch(base: $0)
      },
      inMemory(.t4, "has transactions that go on after their end") { NeverEnds(base: $0) },
      inMemory(.t4, "has transactions that find nothing under invalid keys") {
        AltersTransactions(base: $0) { FindsNothingUnderInvalidKeys($0) }
      },
      inMemory(.t4, "has transactions that count what they refuse") {
        AltersTransactions(base: $0) { CountsRefusedWrites($0) }
      },
      inMemory(.t4, "returns though it has aborted the body that goes on", also: [.t1]) {
        AbortsAtWrites(base: $0, end: .returns)
      },
      inMemory(.t4, "commits what a body writes that it has aborted", also: [.t1]) {
        AbortsAtWrites(base: $0, end: .commitsTheRest)
      },
      inMemory(.t3, "remembers what a body that threw has removed") { RemembersThrownRemovals(base: $0) },
      inMemory(.t4, "returns the result of the first run", also: [.t1]) { ReturnsTheFirstResult(base: $0) },
      inMemory(.c4, "says that a transaction was cancelled when it is done") {
        ThrowsAfterTransactions(base: $0)
      },
      .init(
        persistent: .o3, "runs bodies when it is closed",
        claiming: ReferenceEngine.promises.union(.transactions)
      ) { base, _ in RunsBodiesWhenClosed(base: base) },
      .init(
        persistent: .o4, "keeps the body of its last transaction",
        claiming: ReferenceEngine.promises.union(.transactions)
      ) { base, _ in KeepsBodies(base: base) },
      inMemory(.t1, "writes an entry that a body could have read, to lock it") {
        LocksByWriting(base: $0)
      },
    ]
}

// MARK: - Bodies that throw

/// Commits the changes of a body even if it throws.
struct CommitsThrownBodies: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { transaction in
      Swift.Result { try body(transaction) }.mapError { SentError(error: $0) }
    }.mapError(\.error).get()
  }
}

private struct SentError: Error {
  let error: any Error
}

/// Replaces the error of a body with a generic one.
struct ReplacesErrors: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    do {
      return try await base.withTransaction(body)
    } catch is CancellationError {
      throw CancellationError()
    } catch let error as StorageError where error.code == .closed {
      throw error
    } catch {
      throw StorageError(.io, "The transaction failed.", underlying: error)
    }
  }
}

/// Retries if the server is unavailable or there is a conflict, even if the body itself throws such an error.
struct TakesErrorsForItsOwn: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    for _ in 0..<3 {
      do {
        return try await base.withTransaction(body)
      } catch let error as StorageError where error.code == .conflict || error.code == .unavailable {
        await Task.yield()
      }
    }
    throw StorageError(.unavailable, "The server did not answer.")
  }
}

/// If a body throws and the keys have changed meanwhile, restores all entries from its beginning.
struct TakesBackTooMuch: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try Task.checkCancellation()
    return try await onDedicatedThread {
      let before = try base.everything()
      do {
        return try base.transact(body)
      } catch {
        usleep(500)
        let now = try base.everything()
        let isSame = now.map(\.key) == before.map(\.key) && now.map(\.data) == before.map(\.data)
        if now.count != before.count || !isSame && Set(now.map(\.key)) != Set(before.map(\.key)) {
          try base.commit([.removeAll] + before.map { .write($0.data, key: $0.key) })
        }
        throw error
      }
    }
  }
}

/// Does the work on a new thread.
func onDedicatedThread<Result: Sendable>(_ work: @escaping @Sendable () throws -> Result) async throws
  -> Result
{
  try await withCheckedThrowingContinuation { continuation in
    Thread.detachNewThread { continuation.resume(with: Swift.Result { try work() }) }
  }
}

// MARK: - Ends

/// Its transactions can be used for as long as they are referenced.
struct NeverEnds: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { transaction in
      let entries = try transaction.scan(.all, limit: nil).map { ($0.key, $0.data) }
      let copy = CopyTransaction(Dictionary(uniqueKeysWithValues: entries))
      let result = try body(copy)
      try transaction.apply(copy.operations)
      return result
    }
  }
}

/// Keeps the body of its last transaction for as long as it exists itself. If the body holds the engine, that is a
/// reference cycle.
final class KeepsBodies: FaultyEngine {
  let base: ReferenceEngine
  private let last = MutexProtected<(any Sendable)?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    last.withLock { $0 = body }
    return try await base.withTransaction(body)
  }
}

/// Treats an invalid key as absent.
final class FindsNothingUnderInvalidKeys: ForwardingTransaction {
  override func read(key: CacheKey) throws -> Data? {
    do {
      return try base.read(key: key)
    } catch let error as StorageError where error.code == .invalidKey {
      return nil
    }
  }
}

/// Returns the result of the first run of a body, even if that run is not committed.
struct ReturnsTheFirstResult: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try Task.checkCancellation()
    return try await onDedicatedThread {
      var first: Result?
      return try base.transact { transaction in
        let result = try body(transaction)
        if first == nil { usleep(200) }
        first = first ?? result
        return first ?? result
      }
    }
  }
}

/// Checks for cancellation after committing the transaction.
struct ThrowsAfterTransactions: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let result = try await base.withTransaction(body)
    // Gives time for a cancellation during the call, however fast the engine is.
    for _ in 0..<20 where !Task.isCancelled { await Task.yield() }
    try Task.checkCancellation()
    return result
  }
}

/// Only checks at the commit whether it is closed.
struct RunsBodiesWhenClosed: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    do {
      return try await base.withTransaction(body)
    } catch let error as StorageError where error.code == .closed {
      _ = try body(CopyTransaction([:]))
      throw error
    }
  }
}

/// Rewrites the first entry unchanged, to lock out other writers.
struct LocksByWriting: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { transaction in
      let result = try body(transaction)
      if let (key, data) = try transaction.scan(.all, limit: 1).first {
        try transaction.write(data, key: key)
      }
      return result
    }
  }
}

/// Counts a write before it validates the key.
final class CountsRefusedWrites: ForwardingTransaction {
  private var refused = 0
  override func write(_ data: Data, key: CacheKey) throws {
    do {
      try base.write(data, key: key)
    } catch {
      refused += 1
      throw error
    }
  }
  override func keyCount() throws -> Int { try base.keyCount() + refused }
}

/// Caches that the keys removed by a body are absent, even if the body throws.
final class RemembersThrownRemovals: FaultyEngine {
  private final class Absent: Sendable {
    let keys = MutexProtected<Set<CacheKey>>([])
  }

  private final class NotesRemovals: ForwardingTransaction {
    private let absent: Absent
    init(_ base: any StorageTransaction, _ absent: Absent) {
      self.absent = absent
      super.init(base)
    }
    override func remove(key: CacheKey) throws {
      try base.remove(key: key)
      absent.keys.withLock { _ = $0.insert(key) }
    }
  }

  let base: ReferenceEngine
  private let absent = Absent()
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { [absent] in try body(NotesRemovals($0, absent)) }
  }
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    let (found, absent) = (try await base.keysExist(keys), absent.keys.withLock { $0 })
    return found.filter { !absent.contains($0) }
  }
}
