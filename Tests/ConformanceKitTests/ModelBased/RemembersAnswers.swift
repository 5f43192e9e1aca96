import FaultyEngineWorker
import Foundation
import StockroomCore

@testable import ConformanceKit

/// Caches the results of one method, and clears the cache after each change except those of one kind.
final class RemembersAnswers: FaultyEngine {
  enum Change: Sendable { case transactions, imports }

  let base: ReferenceEngine
  private let method: ReadMethod
  private let missed: Change
  /// Whether it does not cache that an entry is absent.
  private let forgetsAbsence: Bool
  /// By request.
  private let answers = MutexProtected<[String: any Sendable]>([:])

  init(
    base: ReferenceEngine, _ method: ReadMethod, missing missed: Change, forgettingAbsence: Bool = false
  ) {
    (self.base, self.method, self.missed, forgetsAbsence) = (base, method, missed, forgettingAbsence)
  }

  private func answer<Answer: Sendable>(
    _ method: ReadMethod, _ request: some Any, _ ask: () async throws -> Answer
  ) async throws -> Answer {
    guard method == self.method else { return try await ask() }
    let request = "\(request)"
    if let known = answers.withLock({ $0[request] }), let answer = known as? Answer { return answer }
    let answer = try await ask()
    if forgetsAbsence, (answer as? Date?) == .some(nil) { return answer }
    answers.withLock { $0[request] = answer }
    return answer
  }

  private func changing<Result>(_ change: () async throws -> Result) async throws -> Result {
    defer { answers.withLock { $0 = [:] } }
    return try await change()
  }

  // MARK: - Changes

  func write(_ data: Data, key: CacheKey) async throws {
    try await changing { try await base.write(data, key: key) }
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await changing { try await base.write(dataAndKeys) }
  }
  func remove(key: CacheKey) async throws { try await changing { try await base.remove(key: key) } }
  func remove(keys: [CacheKey]) async throws { try await changing { try await base.remove(keys: keys) } }
  func removeAllData() async throws { try await changing { try await base.removeAllData() } }
  func apply(_ operations: [StorageOperation]) async throws {
    try await changing { try await base.apply(operations) }
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    if missed == .imports { return try await base.writeEntries(entries) }
    try await changing { try await base.writeEntries(entries) }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    if missed == .transactions { return try await base.withTransaction(body) }
    return try await changing { try await base.withTransaction(body) }
  }

  // MARK: - Answers

  func read(key: CacheKey) async throws -> Data? {
    try await answer(.read, key) { try await base.read(key: key) }
  }
  func read(keys: [CacheKey]) async throws -> [Data] {
    try await answer(.readMany, keys) { try await base.read(keys: keys) }
  }
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await answer(.readDataAndKeys, keys) { try await base.readDataAndKeys(keys: keys) }
  }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await answer(.readEntries, keys) { try await base.readEntries(keys: keys) }
  }
  func readAllData() async throws -> [Data] {
    try await answer(.readAllData, "") { try await base.readAllData() }
  }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await answer(.readAllDataAndKeys, "") { try await base.readAllDataAndKeys() }
  }
  func readAllEntries() async throws -> [StorageEntry] {
    try await answer(.readAllEntries, "") { try await base.readAllEntries() }
  }
  func keyExists(_ key: CacheKey) async throws -> Bool {
    try await answer(.keyExists, key) { try await base.keyExists(key) }
  }
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await answer(.keysExist, keys) { try await base.keysExist(keys) }
  }
  func keyCount() async throws -> Int { try await answer(.keyCount, "") { try await base.keyCount() } }
  func allKeys() async throws -> [CacheKey] { try await answer(.allKeys, "") { try await base.allKeys() } }
  func createdAt(key: CacheKey) async throws -> Date? {
    try await answer(.createdAt, key) { try await base.createdAt(key: key) }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try await answer(.updatedAt, key) { try await base.updatedAt(key: key) }
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await answer(.scan, (range, limit)) { try await base.scan(range, limit: limit) }
  }
}
