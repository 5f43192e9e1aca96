import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import StockroomMemory
import TestFixtures

// Engines that commit something else than what a body has changed, or at another time.

extension FaultyEngineCase {
  static let ofCommits: [FaultyEngineCase] = [
    inMemory(.t4, "lets an ended transaction change what another body changes") {
      KnowsThatABodyRuns(base: $0)
    },
    inMemory(.t4, "takes back a transaction that returns nil") { TakesNilForGivenUp(base: $0) },
    inMemory(.t1, "runs no body again that only removes") {
      RunsAgainUnless(base: $0, exempt: .removals)
    },
    inMemory(.t1, "runs no body again that imports") { RunsAgainUnless(base: $0, exempt: .imports) },
    .init(
      persistent: .t1, "runs no body again for new keys of another engine",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, place in OverlooksNewKeysOfOthers(base: base, place: place) },
    .init(
      persistent: .t1, "reads in a body what another engine has written meanwhile",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, place in ReadsWritesOfOthers(base: base, place: place) },
    inMemory(.t3, "has written a thousand changes of a body by the time that it throws") {
      WritesLargeBodiesEarly(base: $0)
    },
    inMemory(.t3, "loses a write that has waited for a body that throws") { CommitsWithABody(base: $0) },
    inMemory(.t2, "moves what a body writes twice to the end") {
      AltersTransactions(base: $0) { MovesToTheEnd($0) }
    },
    inMemory(.t2, "commits a thousand removals of a body") { CommitsAThousandRemovals(base: $0) },
    .init(
      .w2, "keeps the imported times of what a body overwrites", also: [.t2],
      claiming: claimsOfTransactions.union(.preservesTimestamps)
    ) { _ in KeepsTimesOfImports(base: MemoryStorageEngine()) },
    .init(
      .w4, "commits a body one write after the other", also: [.t1, .c1],
      claiming: [.atomicBatches, .transactions]
    ) { CommitsOneByOne(base: $0) },
  ]
}

// MARK: - Ended transactions, and their results

/// A transaction is usable while a body runs, even if that is another transaction's.
struct KnowsThatABodyRuns: FaultyEngine {
  let base: ReferenceEngine
  private let current = CurrentTransaction()

  init(base: ReferenceEngine) { self.base = base }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { [current] transaction in
      current.transaction = transaction
      defer { current.transaction = nil }
      return try body(PassesToTheCurrent(current))
    }
  }
}

/// The transaction whose body runs.
private final class CurrentTransaction: @unchecked Sendable {
  // Safe to share: bodies run on one thread, one after the other, and only they and the checks of ended transactions,
  // which run no body meanwhile, access it.
  var transaction: (any StorageTransaction)?

  func get() throws -> any StorageTransaction {
    guard let transaction else { throw StorageError(.closed, "No body runs.") }
    return transaction
  }
}

private final class PassesToTheCurrent: StorageTransaction {
  private let current: CurrentTransaction
  init(_ current: CurrentTransaction) { self.current = current }

  func read(key: CacheKey) throws -> Data? { try current.get().read(key: key) }
  func read(keys: [CacheKey]) throws -> [Data] { try current.get().read(keys: keys) }
  func keyExists(_ key: CacheKey) throws -> Bool { try current.get().keyExists(key) }
  func keyCount() throws -> Int { try current.get().keyCount() }
  func allKeys() throws -> [CacheKey] { try current.get().allKeys() }
  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    try current.get().scan(range, limit: limit)
  }
  func write(_ data: Data, key: CacheKey) throws { try current.get().write(data, key: key) }
  func writeEntry(_ entry: StorageEntry) throws { try current.get().writeEntry(entry) }
  func remove(key: CacheKey) throws { try current.get().remove(key: key) }
  func removeAll() throws { try current.get().removeAll() }
}

/// Keeps the result of a run in an optional, and treats nil as a run that was aborted.
struct TakesNilForGivenUp: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let isNil = NilNote()
    return try await withTransaction(lostIf: { isNil.value.withLock { $0 } }) { transaction in
      let result = try body(transaction)
      let mirror = Mirror(reflecting: result)
      let found = mirror.displayStyle == .optional && mirror.children.isEmpty
      isNil.value.withLock { $0 = found }
      return result
    }
  }
}

private final class NilNote: Sendable {
  let value = MutexProtected(false)
}

// MARK: - Bodies that throw

/// Simulates an engine that writes the first thousand changes of a large body early, and does not revert them if the
/// body throws.
struct WritesLargeBodiesEarly: FaultyEngine {
  private final class RecordingTransaction: ForwardingTransaction {
    private(set) var operations: [StorageOperation] = []
    override func write(_ data: Data, key: CacheKey) throws {
      try base.write(data, key: key)
      operations.append(.write(data, key: key))
    }
  }
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let early = MutexProtected<[StorageOperation]>([])
    do {
      return try await base.withTransaction { transaction in
        let recording = RecordingTransaction(transaction)
        do {
          return try body(recording)
        } catch {
          let written = recording.operations.count > 1_000 ? Array(recording.operations.prefix(1_000)) : []
          early.withLock { $0 = written }
          throw error
        }
      }
    } catch {
      let written = early.withLock { $0 }
      if !written.isEmpty { try await base.apply(written) }
      throw error
    }
  }
}

/// Commits a write that waits for a body together with it, and not at all if the body throws.
final class CommitsWithABody: FaultyEngine {
  private struct State {
    var running = 0
    var ended = 0
    var hasThrown = false
  }
  let base: ReferenceEngine
  private let state = MutexProtected(State())
  init(base: ReferenceEngine) { self.base = base }

  private func end(throwing isThrown: Bool) {
    state.withLock { state in
      state.running -= 1
      state.ended += 1
      state.hasThrown = isThrown
    }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    state.withLock { $0.running += 1 }
    do {
      let result = try await base.withTransaction(body)
      end(throwing: false)
      return result
    } catch {
      end(throwing: true)
      throw error
    }
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    let before = state.withLock { $0 }
    if before.running > 0 {
      while state.withLock({ $0.ended }) == before.ended { await Task.yield() }
      if state.withLock({ $0.hasThrown }) { return }
    }
    try await base.write(data, key: key)
  }
}

// MARK: - What is committed

/// Stores what a body writes again as a new entry, if it was new before.
final class MovesToTheEnd: ForwardingTransaction {
  private var new: Set<CacheKey> = []
  override func write(_ data: Data, key: CacheKey) throws {
    if new.contains(key) {
      try base.remove(key: key)
    } else if try !base.keyExists(key) {
      new.insert(key)
    }
    try base.write(data, key: key)
  }
}

/// Commits no more than the first thousand removals of a body.
struct CommitsAThousandRemovals: FaultyEngine {
  private final class RecordingTransaction: ForwardingTransaction {
    private(set) var removed: [(key: CacheKey, data: Data)] = []
    override func remove(key: CacheKey) throws {
      let data = try base.read(key: key)
      try base.remove(key: key)
      if let data { removed.append((key, data)) }
    }
  }
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let (result, removed) = try await base.withTransaction { transaction in
      let recording = RecordingTransaction(transaction)
      let result = try body(recording)
      return (result, recording.removed)
    }
    let lost = removed.dropFirst(1_000)
    if !lost.isEmpty {
      let there = Set(try await base.keysExist(lost.map(\.key)))
      try await base.write(lost.filter { !there.contains($0.key) })
    }
    return result
  }
}

/// If a body overwrites an entry that it has imported, keeps the imported times.
struct KeepsTimesOfImports: FaultyEngine {
  private final class NotingTransaction: ForwardingTransaction {
    private var imported: [CacheKey: StorageEntry] = [:]
    override func writeEntry(_ entry: StorageEntry) throws {
      try base.writeEntry(entry)
      imported[entry.key] = entry
    }
    override func write(_ data: Data, key: CacheKey) throws {
      guard var entry = imported[key] else { return try base.write(data, key: key) }
      entry.data = data
      try base.writeEntry(entry)
    }
    override func remove(key: CacheKey) throws {
      try base.remove(key: key)
      imported[key] = nil
    }
    override func removeAll() throws {
      try base.removeAll()
      imported = [:]
    }
  }
  let base: MemoryStorageEngine
  func writeEntries(_ entries: [StorageEntry]) async throws { try await base.writeEntries(entries) }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { try body(NotingTransaction($0)) }
  }
}

/// Makes the changes of a body one after the other, once it has ended.
struct CommitsOneByOne: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let (result, operations) = try await runOnCopy(body)
    // In a task that is not cancelled, so that each of them is made.
    try await Task { [base] in
      for operation in operations {
        try await base.apply([operation])
        if operations.count < 100 { await Task.yield() }
      }
    }.value
    return result
  }
}
