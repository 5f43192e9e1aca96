@testable import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines whose transactions interfere with each other, as weak isolation levels allow.

extension FaultyEngineCase {
  static let ofIsolation: [FaultyEngineCase] = [
    isolation("does not notice what others change", .none),
    .init(
      persistent: .t1, "shares nothing between two engines", fault: .sharesNothing,
      also: [.c2, .c6, .w2, .r6],
      claiming: ReferenceEngine.promises.union(.transactions)),
    isolation("keeps out other transactions, and no other call", .otherTransactions),
    isolation("notices changes of the keys that a body writes", .keysWritten),
    isolation("notices changes of the keys that a body has read one by one", .keysRead),
    isolation("notices changes of all that a body has read but of what exists", .allButExistence),
    isolation("notices changes up to the last entry that a scan has found", .upToTheLastFound),
    .init(
      .t1, "begins at version 1 when a key comes back", also: [.t3, .t4, .t5],
      claiming: claimsOfTransactions
    ) { RestartsVersions(base: $0) },
    .init(
      .t1, "gives no other version to what is imported", also: [.t3, .t4, .t5], claiming: claimsOfTransactions
    ) { RestartsVersions(base: $0, overlooking: .writeEntries) },
    .init(
      .t1, "gives no other version to what is removed", also: [.t3, .t4, .t5], claiming: claimsOfTransactions
    ) { RestartsVersions(base: $0, overlooking: .remove) },
    isolation("notices changes only if the body writes", .readsIfItWrites),
    isolation("writes at once, and takes it back if the body throws", .writesAtOnce, also: [.t3]),
    inMemory(.t1, "looks for changes by other calls of what a body writes only") {
      LooksForConflicts(base: $0, .whatIsWritten)
    },
    inMemory(.t1, "does not find what has been removed from a list that a body has read") {
      LooksForConflicts(base: $0, .whatIsThere)
    },
    inMemory(.t1, "looks for other keys in a list that a body has read, not for other values") {
      LooksForConflicts(base: $0, .whichKeysAreThere)
    },
    inMemory(.t1, "numbers lists by batches, and not by single writes") {
      ValidatesLists(base: $0, .numbersBatches)
    },
    inMemory(.t1, "compares the number of keys with that of a list that a body has read") {
      ValidatesLists(base: $0, .countsListedKeys)
    },
    inMemory(.t1, "looks at what a limited scan has found, and not at what is in between") {
      ValidatesLists(base: $0, .overlooksGaps)
    },
  ]

  private static func isolation(
    _ name: String, _ level: LooseTransaction.Level, also: Set<ContractRule> = []
  ) -> FaultyEngineCase {
    FaultyEngineCase(.t1, name, also: also.union([.t3, .t4, .t5]), claiming: claimsOfTransactions) {
      LooseTransactions(base: $0, level: level)
    }
  }
}

/// Runs bodies on a copy, and again if an existing entry has a new version. The version of a recreated key starts again
/// at 1, or one kind of change does not increment it.
final class RestartsVersions: FaultyBatchEngine {
  let base: ReferenceEngine
  private let versions = MutexProtected<[CacheKey: Int]>([:])
  private let turns = AsyncSemaphore(width: 1)
  private let overlooked: ChangeMethod?
  init(base: ReferenceEngine, overlooking overlooked: ChangeMethod? = nil) {
    (self.base, self.overlooked) = (base, overlooked)
  }

  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await alone {
      try await base.writeEntries(entries)
      if overlooked == .writeEntries { return }
      versions.withLock { versions in for entry in entries { versions[entry.key, default: 0] += 1 } }
    }
  }

  func apply(_ operations: [StorageOperation]) async throws {
    await turns.enter()
    defer { turns.leave() }
    try await perform(operations)
  }

  func removeAllData() async throws { try await apply([.removeAll]) }

  private func perform(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    versions.withLock { versions in
      for operation in operations {
        switch operation {
        case .write(_, let key): versions[key, default: 0] += 1
        case .remove where overlooked == .remove: break
        case .remove(let key): versions[key] = nil
        case .removeAll: versions = [:]
        }
      }
    }
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    while true {
      let before = await alone { versions.withLock { $0 } }
      let (result, operations) = try await runOnCopy(body)
      let isDone = try await alone {
        guard versions.withLock({ $0 }) == before else { return false }
        try await perform(operations)
        return true
      }
      if isDone { return result }
    }
  }

  private func alone<Result>(_ work: () async throws -> Result) async rethrows -> Result {
    await turns.enter()
    defer { turns.leave() }
    return try await work()
  }
}

/// Runs each body on a separate thread, on the engine's current entries.
final class LooseTransactions: FaultyEngine {
  let base: ReferenceEngine
  private let level: LooseTransaction.Level
  private let turn = NSLock()

  init(base: ReferenceEngine, level: LooseTransaction.Level) { (self.base, self.level) = (base, level) }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try Task.checkCancellation()
    return try await onDedicatedThread { [self] in
      if level == .otherTransactions || level == .writesAtOnce { turn.lock() }
      defer { if level == .otherTransactions || level == .writesAtOnce { turn.unlock() } }
      while true {
        let transaction = LooseTransaction(base, level)
        let result: Result
        do { result = try body(transaction) } catch {
          try transaction.takeBack()
          throw error
        }
        // As slow as a commit.
        usleep(200)
        if try transaction.commit(turn) { return result }
      }
    }
  }
}

/// Reads the engine's current entries, and writes at the commit, or at once with `writesAtOnce`.
final class LooseTransaction: StorageTransaction, @unchecked Sendable {
  // Safe to share: only one body uses it, on one thread.
  enum Level: Sendable {
    case none, otherTransactions, keysWritten, keysRead, allButExistence
    case upToTheLastFound
    case readsIfItWrites, writesAtOnce
  }

  private let engine: ReferenceEngine
  private let level: Level
  private var isOver = false
  private var removesAll = false
  private var changes: [CacheKey: Data?] = [:]
  private var operations: [StorageOperation] = []
  private var reads: [CacheKey: Data?] = [:]
  private var undo: [StorageOperation] = []
  /// Whether all entries have been read.
  private var looksAtAll = false
  private var before: [CacheKey: Data] = [:]
  /// The results of scans.
  private var scans: [(range: KeyRange, found: [CacheKey: Data])] = []

  init(_ engine: ReferenceEngine, _ level: Level) { (self.engine, self.level) = (engine, level) }

  private func stored() throws -> [CacheKey: Data] {
    Dictionary(uniqueKeysWithValues: try engine.everything().map { ($0.key, $0.data) })
  }

  /// The current entries, with the changes of this transaction.
  private func visible() throws -> [CacheKey: Data] {
    if isOver { throw StorageError(.closed, "The transaction is over.") }
    var entries = try removesAll ? [:] : stored()
    for (key, data) in changes { entries[key] = data }
    return entries
  }

  func read(key: CacheKey) throws -> Data? {
    try key.validate()
    let data = try visible()[key]
    if changes[key] == nil, !removesAll, reads[key] == nil { reads[key] = .some(data) }
    // Lets other threads run, as a read from a disk would.
    sched_yield()
    return data
  }

  func read(keys: [CacheKey]) throws -> [Data] {
    try keys.validate()
    return try keys.compactMap { try read(key: $0) }
  }

  func keyExists(_ key: CacheKey) throws -> Bool {
    guard level == .allButExistence else { return try read(key: key) != nil }
    try key.validate()
    return try visible()[key] != nil
  }
  func keyCount() throws -> Int { try everything().count }
  func allKeys() throws -> [CacheKey] { Array(try everything().keys) }

  private func everything() throws -> [CacheKey: Data] {
    if !looksAtAll { (looksAtAll, before) = (true, try stored()) }
    return try visible()
  }

  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    let found = try everything().filter { range.contains($0.key) }.sorted { $0.key < $1.key }
    if operations.isEmpty { scans.append((range, try stored().filter { range.contains($0.key) })) }
    return found.prefix(max(0, limit ?? .max)).map { (key: $0.key, data: $0.value) }
  }

  func write(_ data: Data, key: CacheKey) throws {
    try key.validate()
    try perform(.write(data, key: key))
    changes[key] = .some(data)
  }

  func remove(key: CacheKey) throws {
    try key.validate()
    try perform(.remove(key: key))
    changes[key] = .some(nil)
  }

  func removeAll() throws {
    try perform(.removeAll)
    (removesAll, changes) = (true, [:])
  }

  private func perform(_ operation: StorageOperation) throws {
    if isOver { throw StorageError(.closed, "The transaction is over.") }
    guard level == .writesAtOnce else { return operations.append(operation) }
    if undo.isEmpty {
      undo = [.removeAll] + (try engine.entries().map { .write($0.data, key: $0.key) })
    }
    try engine.commit([operation])
  }

  /// Ends the transaction, and reverts its writes.
  func takeBack() throws {
    isOver = true
    if !undo.isEmpty { try engine.commit(undo) }
  }

  /// Ends the transaction. Commits it, unless it detects changes by others. Returns whether it has committed.
  func commit(_ turn: NSLock) throws -> Bool {
    isOver = true
    if operations.isEmpty { return true }
    if level == .none || level == .otherTransactions {
      try engine.commit(operations)
      return true
    }
    turn.lock()
    defer { turn.unlock() }
    let now = try stored()
    let seen = level == .keysWritten ? reads.filter { changes[$0.key] != nil } : reads
    guard seen.allSatisfy({ now[$0.key] == $0.value }) else { return false }
    if level == .allButExistence, looksAtAll, now != before { return false }
    if level == .upToTheLastFound {
      for (range, found) in scans {
        let last = found.keys.max()
        let current = now.filter { entry in range.contains(entry.key) && last.map { entry.key <= $0 } ?? true
        }
        if current != found { return false }
      }
    }
    try engine.commit(operations)
    return true
  }
}
