@testable import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines that validate only some of what a body has read.

/// Notes the keys that a body reads.
private final class RecordingTransaction: ForwardingTransaction {
  private(set) var keys: [CacheKey] = []
  private(set) var hasReadOtherwise = false
  private let chooseOfRequest: LooksAgainAtSome.Choice?
  init(_ base: any StorageTransaction, ofRequest choose: LooksAgainAtSome.Choice?) {
    chooseOfRequest = choose
    super.init(base)
  }
  override func read(key: CacheKey) throws -> Data? {
    keys.append(key)
    return try base.read(key: key)
  }
  override func read(keys: [CacheKey]) throws -> [Data] {
    if let chooseOfRequest { self.keys += chooseOfRequest(keys) } else { hasReadOtherwise = true }
    return try base.read(keys: keys)
  }
  override func keyExists(_ key: CacheKey) throws -> Bool {
    keys.append(key)
    return try base.keyExists(key)
  }
  override func keyCount() throws -> Int {
    hasReadOtherwise = true
    return try base.keyCount()
  }
  override func allKeys() throws -> [CacheKey] {
    hasReadOtherwise = true
    return try base.allKeys()
  }
  override func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    hasReadOtherwise = true
    return try base.scan(range, limit: limit)
  }
}

/// Runs bodies on a copy, and again if some of the keys that they have read have changed.
final class LooksAgainAtSome: FaultyEngine {
  typealias Choice = @Sendable ([CacheKey]) -> [CacheKey]
  let base: ReferenceEngine
  private let notesRequests: Bool
  private let (choose, chooseOfRequest): (Choice, Choice)

  /// - Parameters:
  ///   - notesRequests: Whether the keys of requests are noted. If not, a request counts as reading everything.
  ///   - choose: The keys that it compares again, of all those that it has noted.
  ///   - chooseOfRequest: The keys that it notes of a request.
  init(
    base: ReferenceEngine, ofRequests notesRequests: Bool, choosing choose: @escaping Choice,
    ofRequest chooseOfRequest: @escaping Choice = { $0 }
  ) {
    (self.base, self.notesRequests) = (base, notesRequests)
    (self.choose, self.chooseOfRequest) = (choose, chooseOfRequest)
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await runOnCopy { [notesRequests, choose, chooseOfRequest] transaction in
      let noting = RecordingTransaction(transaction, ofRequest: notesRequests ? chooseOfRequest : nil)
      let result = try body(noting)
      return (result, (keys: choose(noting.keys), looksAtAll: noting.hasReadOtherwise))
    } until: { read, _, before, now in
      if read.looksAtAll, now != before { return false }
      return read.keys.allSatisfy { now[$0] == before[$0] }
    }
  }
}

/// Runs bodies on a copy, and again if a key that they have read has changed and is in its log of the last changes.
final class LogsSomeChanges: FaultyBatchEngine {
  let base: ReferenceEngine
  private let changeCount: Int
  private let keyCount: Int
  private struct Log {
    /// The number of all changes.
    var count = 0
    /// The keys of the last changes; nil stands for all keys.
    var changes: [Set<CacheKey>?] = []
  }
  private let log = MutexProtected(Log())

  /// - Parameters:
  ///   - changeCount: The number of changes in the log.
  ///   - keyCount: The number of keys in the log for each of them.
  init(base: ReferenceEngine, changes changeCount: Int = .max, keysOfEach keyCount: Int = .max) {
    (self.base, self.changeCount, self.keyCount) = (base, changeCount, keyCount)
  }

  private func note(_ operations: [StorageOperation]) {
    let keys = operations.map(\.keyOfChange)
    let noted = keys.contains(nil) ? nil : Set(keys.prefix(keyCount).compactMap { $0 })
    log.withLock { log in
      log.count += 1
      log.changes.append(noted)
      if log.changes.count > changeCount { log.changes.removeFirst() }
    }
  }

  func apply(_ operations: [StorageOperation]) async throws {
    note(operations)
    try await base.apply(operations)
  }

  func removeAllData() async throws { try await apply([.removeAll]) }

  func writeEntries(_ entries: [StorageEntry]) async throws {
    note(entries.map { .write($0.data, key: $0.key) })
    try await base.writeEntries(entries)
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await runOnCopy { [self] transaction in
      let start = log.withLock { $0.count }
      let noting = RecordingTransaction(transaction, ofRequest: { $0 })
      let result = try body(noting)
      return (result, (start: start, keys: noting.keys, looksAtAll: noting.hasReadOtherwise))
    } until: { [self] read, operations, before, now in
      if read.looksAtAll, now != before { return false }
      let changed = read.keys.filter { now[$0] != before[$0] }
      let isFound = log.withLock { log in
        log.changes.suffix(log.count - read.start)
          .contains { keys in changed.contains { keys?.contains($0) ?? true } }
      }
      if !isFound { note(operations) }
      return !isFound
    }
  }
}

/// Runs bodies on copies, of which those that run at the same time share one, and again if others have written.
final class SharesCopies: FaultyEngine {
  let base: ReferenceEngine
  private let running = MutexProtected((count: 0, copy: [CacheKey: Data]()))
  init(base: ReferenceEngine) { self.base = base }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await runOnCopy(of: { now in
      running.withLock { running in
        if running.count == 0 { running.copy = now }
        running.count += 1
        return running.copy
      }
    }) { [self] transaction in
      defer { running.withLock { $0.count -= 1 } }
      return (try body(transaction), true)
    } until: { _, _, before, now in
      now == before
    }
  }
}
