import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines whose bodies do not see their own writes, or lose them.

/// One kind of read shows the entries from before the body.
final class HidesOwnWrites: ForwardingTransaction {
  enum Kind: CaseIterable { case read, readMany, keyExists, keyCount, allKeys, scan }
  private let kind: Kind
  private let before: [CacheKey: Data]
  private var isHiding: Bool

  init(_ base: any StorageTransaction, _ kind: Kind, afterRemoveAllOnly: Bool = false) throws {
    before = Dictionary(uniqueKeysWithValues: try base.scan(.all, limit: nil).map { ($0.key, $0.data) })
    (self.kind, isHiding) = (kind, !afterRemoveAllOnly)
    super.init(base)
  }
  private func hides(_ kind: Kind) -> Bool { isHiding && self.kind == kind }
  override func read(key: CacheKey) throws -> Data? {
    let data = try base.read(key: key)
    return hides(.read) ? before[key] : data
  }
  override func read(keys: [CacheKey]) throws -> [Data] {
    let data = try base.read(keys: keys)
    return hides(.readMany) ? keys.compactMap { before[$0] } : data
  }
  override func keyExists(_ key: CacheKey) throws -> Bool {
    let exists = try base.keyExists(key)
    return hides(.keyExists) ? before[key] != nil : exists
  }
  override func keyCount() throws -> Int {
    let count = try base.keyCount()
    return hides(.keyCount) ? before.count : count
  }
  override func allKeys() throws -> [CacheKey] {
    let keys = try base.allKeys()
    return hides(.allKeys) ? Array(before.keys) : keys
  }
  override func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    let found = try base.scan(range, limit: limit)
    guard hides(.scan) else { return found }
    let all = before.filter { range.contains($0.key) }.sorted { $0.key < $1.key }
    return all.prefix(max(0, limit ?? .max)).map { (key: $0.key, data: $0.value) }
  }
  override func removeAll() throws {
    try base.removeAll()
    isHiding = true
  }
}

/// Fetches 500 stored entries at a time, and returns all own writes together with the first of them.
final class GivesOwnWritesFirst: ForwardingTransaction {
  private var own: Set<CacheKey> = []
  override func write(_ data: Data, key: CacheKey) throws {
    try base.write(data, key: key)
    own.insert(key)
  }
  override func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    let all = try base.scan(range, limit: nil)
    let stored = all.filter { !own.contains($0.key) }
    guard let last = stored.prefix(500).last?.key else { return Array(all.prefix(max(0, limit ?? .max))) }
    let first = all.filter { own.contains($0.key) || $0.key <= last }
    return Array((first + stored.dropFirst(500)).prefix(max(0, limit ?? .max)))
  }
}

/// A limit below zero is no limit, as in SQL.
final class TakesNegativeForUnlimited: ForwardingTransaction {
  override func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    try base.scan(range, limit: limit.flatMap { $0 < 0 ? nil : $0 })
  }
}

/// Passes another transaction to the body.
struct AltersTransactions: FaultyEngine {
  let base: ReferenceEngine
  let alter: @Sendable (any StorageTransaction) throws -> any StorageTransaction
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { try body(alter($0)) }
  }
}

/// Keeps only the last of a body's changes to each key.
struct OverwritesTheRemoved: FaultyEngine {
  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { transaction in
      let before = Dictionary(
        uniqueKeysWithValues: try transaction.scan(.all, limit: nil).map { ($0.key, $0.data) })
      let copy = CopyTransaction(before)
      defer { copy.end() }
      let result = try body(copy)
      let after = Dictionary(uniqueKeysWithValues: try copy.scan(.all, limit: nil).map { ($0.key, $0.data) })
      for key in before.keys where after[key] == nil { try transaction.remove(key: key) }
      for (key, data) in after.sorted(by: { $0.key < $1.key }) where before[key] != data {
        try transaction.write(data, key: key)
      }
      return result
    }
  }
}
