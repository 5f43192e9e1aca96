import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines whose bodies handle concurrent changes wrongly, or leave something of an aborted run.

extension FaultyEngineCase {
  static let ofRuns: [FaultyEngineCase] = [
    inMemory(.t3, "keeps what a body that threw has imported") { KeepsThrownImports(base: $0) },
    inMemory(.t1, "counts for a body what there is by now") { base in
      AltersTransactions(base: base) { CountsByNow($0, base) }
    },
    inMemory(.t1, "removes at the end of a body what there was when the body removed everything") {
      RemovesWhatItSaw(base: $0)
    },
    inMemory(.l2, "counts what runs have written that were given up", also: [.t1]) {
      CountsRunsGivenUp(base: $0)
    },
    .init(
      persistent: .t1, "shows to other engines what a body has not committed",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, place in ShowsOthersEarly(base: base, place: place) },
    .init(
      persistent: .t1, "runs no body again for what another engine has imported",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, place in OverlooksImportsOfOthers(base: base, place: place) },
    .init(
      persistent: .t3, "takes back what another engine has written when a body throws",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, place in TakesBackOthers(base: base, place: place) },
    .init(
      persistent: .c4, "keeps the turn of a call that was cancelled behind another engine",
      claiming: ReferenceEngine.promises.union(.transactions), stallTimeout: .seconds(8)
    ) { base, place in KeepsTurnsOfPlaces(base: base, place: place) },
  ]
}

/// Imports entries of a body at once, and does not revert that when the body throws.
struct KeepsThrownImports: FaultyEngine {
  private final class RecordingTransaction: ForwardingTransaction {
    private let note: (StorageEntry) -> Void
    init(_ base: any StorageTransaction, note: @escaping (StorageEntry) -> Void) {
      self.note = note
      super.init(base)
    }
    override func writeEntry(_ entry: StorageEntry) throws {
      try base.writeEntry(entry)
      note(entry)
    }
  }
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let imported = MutexProtected<[StorageEntry]>([])
    do {
      return try await base.withTransaction { transaction in
        try body(RecordingTransaction(transaction) { entry in imported.withLock { $0.append(entry) } })
      }
    } catch {
      let entries = imported.withLock { $0 }
      if !entries.isEmpty { try await base.writeEntries(entries) }
      throw error
    }
  }
}

/// Until a body has written something, it counts the current entries instead of those of the snapshot.
final class CountsByNow: ForwardingTransaction {
  private let engine: ReferenceEngine
  private var hasWritten = false
  init(_ base: any StorageTransaction, _ engine: ReferenceEngine) {
    self.engine = engine
    super.init(base)
  }
  override func keyCount() throws -> Int {
    // Throws if the transaction has ended.
    let count = try base.keyCount()
    return hasWritten ? count : try engine.everything().count
  }
  override func write(_ data: Data, key: CacheKey) throws {
    try base.write(data, key: key)
    hasWritten = true
  }
  override func writeEntry(_ entry: StorageEntry) throws {
    try base.writeEntry(entry)
    hasWritten = true
  }
  override func remove(key: CacheKey) throws {
    try base.remove(key: key)
    hasWritten = true
  }
  override func removeAll() throws {
    try base.removeAll()
    hasWritten = true
  }
}

/// Replaces `removeAll()` in a body by removals of the keys that existed before the body.
struct RemovesWhatItSaw: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let there = try await base.allKeys()
    let (result, operations) = try await runOnCopy(body)
    guard operations.contains(where: { if case .removeAll = $0 { true } else { false } }) else {
      return try await base.withTransaction(body)
    }
    try await base.apply(
      operations.flatMap { operation -> [StorageOperation] in
        if case .removeAll = operation { there.map { .remove(key: $0) } } else { [operation] }
      })
    return result
  }
}

/// Counts the new keys of a run of a body before it is known whether the run is committed.
final class CountsRunsGivenUp: FaultyEngine {
  private final class Counting: ForwardingTransaction {
    private(set) var count = 0
    override func write(_ data: Data, key: CacheKey) throws {
      let isNew = try !base.keyExists(key)
      try base.write(data, key: key)
      if isNew { count += 1 }
    }
  }
  let base: ReferenceEngine
  private let surplus = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let counted = MutexProtected(0)
    return try await base.withTransaction { [self] transaction in
      // If the body runs again, the keys of the earlier run have been counted.
      let ofRunBefore = counted.withLock { $0 }
      surplus.withLock { $0 += ofRunBefore }
      let counting = Counting(transaction)
      let result = try body(counting)
      counted.withLock { $0 = counting.count }
      return result
    }
  }
  func keyCount() async throws -> Int { try await base.keyCount() + surplus.withLock { $0 } }
}

/// Shows uncommitted writes of a body to the reads of other engines on the place, but not to its own.
final class ShowsOthersEarly: FaultyEngine {
  private final class RecordingTransaction: ForwardingTransaction {
    private let note: (CacheKey, Data) -> Void
    init(_ base: any StorageTransaction, note: @escaping (CacheKey, Data) -> Void) {
      self.note = note
      super.init(base)
    }
    override func write(_ data: Data, key: CacheKey) throws {
      try base.write(data, key: key)
      note(key, data)
    }
  }
  /// By place, the uncommitted writes of each engine's bodies.
  private static let early = MutexProtected<[String: [Int: [CacheKey: Data]]]>([:])
  let base: ReferenceEngine
  private let place: String
  private let number = EngineNumbers.next()
  init(base: ReferenceEngine, place: URL) { (self.base, self.place) = (base, place.path) }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    defer { Self.early.withLock { [place, number] in $0[place, default: [:]][number] = nil } }
    return try await base.withTransaction { [place, number] transaction in
      try body(
        RecordingTransaction(transaction) { key, data in
          ShowsOthersEarly.early.withLock { $0[place, default: [:]][number, default: [:]][key] = data }
        })
    }
  }
  private func shownEarly(_ key: CacheKey) -> Data? {
    Self.early.withLock { [place, number] early in
      early[place]?.first { $0.key != number && $0.value[key] != nil }?.value[key]
    }
  }
  func read(key: CacheKey) async throws -> Data? {
    let early = shownEarly(key)
    return try await base.read(key: key).map { early ?? $0 }
  }
  func read(keys: [CacheKey]) async throws -> [Data] {
    let early = keys.map(shownEarly)
    let found = try await base.readDataAndKeys(keys: keys)
    return found.map { entry in
      keys.firstIndex(of: entry.key).flatMap { early[$0] } ?? entry.data
    }
  }
}

/// Runs bodies on a copy, and again if an entry has changed, unless another engine on the place has imported it.
final class OverlooksImportsOfOthers: FaultyEngine {
  private static let imports = MutexProtected<[String: [(engine: Int, key: CacheKey)]]>([:])
  let base: ReferenceEngine
  private let place: String
  private let number = EngineNumbers.next()
  init(base: ReferenceEngine, place: URL) { (self.base, self.place) = (base, place.path) }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    let imported = entries.map { (engine: number, key: $0.key) }
    Self.imports.withLock { [place] in $0[place, default: []] += imported }
    try await base.writeEntries(entries)
  }
  /// The keys that other engines have imported after this number of imports.
  private func importedByOthers(since count: Int) -> Set<CacheKey> {
    Self.imports.withLock { [place, number] imports in
      Set((imports[place] ?? []).dropFirst(count).filter { $0.engine != number }.map(\.key))
    }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    while true {
      let importCount = Self.imports.withLock { [place] in $0[place]?.count ?? 0 }
      let before = Dictionary(
        uniqueKeysWithValues: try await base.readAllDataAndKeys().map { ($0.key, $0.data) })
      let (result, operations) = try await runOnCopy(body)
      if operations.isEmpty { return result }
      // The check and the commit are one step.
      let isDone = try await base.withTransaction { [self] transaction in
        let overlooked = importedByOthers(since: importCount)
        let now = try transaction.scan(.all, limit: nil).filter { !overlooked.contains($0.key) }
        let same = before.filter { !overlooked.contains($0.key) }
        guard now.count == same.count, now.allSatisfy({ same[$0.key] == $0.data }) else { return false }
        try transaction.apply(operations)
        return true
      }
      if isDone { return result }
    }
  }
}
