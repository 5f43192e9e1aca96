@testable import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines that validate too little of what a body has counted, listed or scanned.

/// Runs bodies on a copy, and again if what they have read has changed, as far as it validates that.
final class ValidatesLists: FaultyEngine {
  enum Fault {
    /// Compares a number that every change of the set of keys should increment, but only batches and transactions do.
    case numbersBatches
    /// Compares the number of keys with that of a list.
    case countsListedKeys
    /// Validates the entries that a limited scan has found, but not the gaps between them.
    case overlooksGaps
  }

  /// What a body has read.
  private struct ReadSet: Sendable {
    var keys: Set<CacheKey> = []
    var ranges: [(range: KeyRange, last: CacheKey?)] = []
    var (hasListed, hasCounted) = (false, false)
    var structure = 0
  }

  private final class NotesReads: ForwardingTransaction {
    private(set) var reads = ReadSet()
    private let fault: Fault
    init(_ base: any StorageTransaction, structure: Int, _ fault: Fault) {
      self.fault = fault
      reads.structure = structure
      super.init(base)
    }
    override func read(key: CacheKey) throws -> Data? {
      reads.keys.insert(key)
      return try base.read(key: key)
    }
    override func read(keys: [CacheKey]) throws -> [Data] {
      reads.keys.formUnion(keys)
      return try base.read(keys: keys)
    }
    override func keyExists(_ key: CacheKey) throws -> Bool {
      reads.keys.insert(key)
      return try base.keyExists(key)
    }
    override func keyCount() throws -> Int {
      reads.hasCounted = true
      return try base.keyCount()
    }
    override func allKeys() throws -> [CacheKey] {
      reads.hasListed = true
      return try base.allKeys()
    }
    override func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
      let found = try base.scan(range, limit: limit)
      reads.keys.formUnion(found.map(\.key))
      let isLimited = found.count == limit
      if fault != .overlooksGaps || !isLimited {
        reads.ranges.append((range, isLimited ? found.last?.key : nil))
      }
      return found
    }
  }

  let base: ReferenceEngine
  private let fault: Fault
  private let structure = MutexProtected(0)
  private let turns = AsyncSemaphore(width: 1)
  init(base: ReferenceEngine, _ fault: Fault) { (self.base, self.fault) = (base, fault) }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    while true {
      let number = structure.withLock { $0 }
      let before = Dictionary(
        uniqueKeysWithValues: try await base.readAllDataAndKeys().map { ($0.key, $0.data) })
      let (outcome, operations) = try await runOnCopy { [fault] in
        let noting = NotesReads($0, structure: number, fault)
        let result = try body(noting)
        return (result, noting.reads)
      }
      let (result, reads) = outcome
      if operations.isEmpty { return result }
      let isDone = try await inTurn {
        let now = Dictionary(
          uniqueKeysWithValues: try await base.readAllDataAndKeys().map { ($0.key, $0.data) })
        guard reads.keys.allSatisfy({ now[$0] == before[$0] }), areValid(reads, before, now) else {
          return false
        }
        try await base.apply(operations)
        structure.withLock { $0 += 1 }
        return true
      }
      if isDone { return result }
    }
  }

  /// Makes changes one after the other, so that nothing changes between the validation of a body and its commit.
  private func inTurn<Value>(_ change: () async throws -> Value) async throws -> Value {
    await turns.enter()
    defer { turns.leave() }
    return try await change()
  }

  /// Whether what a body has counted, listed or scanned is unchanged.
  private func areValid(_ reads: ReadSet, _ before: [CacheKey: Data], _ now: [CacheKey: Data]) -> Bool {
    if fault == .numbersBatches {
      let looksAtStructure = reads.hasListed || reads.hasCounted || !reads.ranges.isEmpty
      return !looksAtStructure || reads.structure == structure.withLock { $0 }
    }
    if reads.hasCounted, now.count != before.count { return false }
    if reads.hasListed, fault == .countsListedKeys ? now.count != before.count : now.keys != before.keys {
      return false
    }
    return reads.ranges.allSatisfy { range, last in
      let isRead = { (key: CacheKey) in range.contains(key) && last.map { key <= $0 } ?? true }
      return now.filter { isRead($0.key) } == before.filter { isRead($0.key) }
    }
  }

  func write(_ data: Data, key: CacheKey) async throws {
    try await inTurn { try await base.write(data, key: key) }
  }
  func remove(key: CacheKey) async throws { try await inTurn { try await base.remove(key: key) } }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await beginStructure { try await base.write(dataAndKeys) }
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await beginStructure { try await base.writeEntries(entries) }
  }
  func remove(keys: [CacheKey]) async throws {
    try await beginStructure { try await base.remove(keys: keys) }
  }
  func removeAllData() async throws { try await beginStructure { try await base.removeAllData() } }
  func apply(_ operations: [StorageOperation]) async throws {
    try await beginStructure { try await base.apply(operations) }
  }

  private func beginStructure(_ change: () async throws -> Void) async throws {
    try await inTurn {
      try await change()
      structure.withLock { $0 += 1 }
    }
  }
}
