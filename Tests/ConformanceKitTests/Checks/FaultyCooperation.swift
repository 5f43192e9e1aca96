import FaultyEngineWorker
import Foundation
import StockroomCore

@testable import ConformanceKit

// Engines that block their callers' threads or do not yield.

extension FaultyEngineCase {
  /// One for each check of rule C5. They delay everything else in their process.
  static let ofCooperation: [String: @Sendable (ReferenceEngine) -> any StorageEngine] = [
    "cooperation.waits-elsewhere": { SleepsInAnActor(base: $0) },
    "cooperation.readAllData-gives-way": { KeepsItsThread(base: $0, method: .readAllData) },
    "cooperation.readAllDataAndKeys-gives-way": { KeepsItsThread(base: $0, method: .readAllDataAndKeys) },
    "cooperation.readAllEntries-gives-way": { KeepsItsThread(base: $0, method: .readAllEntries) },
    "cooperation.scan-gives-way": { KeepsItsThread(base: $0, method: .scan) },
    "cooperation.while-writing": { BlocksTheCaller(base: $0) },
    "cooperation.while-removing": { BlocksRemovals(base: $0) },
    "cooperation.while-writing-batches": { BlocksBatches(base: $0) },
    "cooperation.while-reading": { BlocksReaders(base: $0) },
  ]
}

/// Blocks one thread at a time.
actor SleepsInAnActor: StorageEngine {
  private let base: ReferenceEngine
  nonisolated let capabilities: EngineCapabilities = []
  init(base: ReferenceEngine) { self.base = base }
  private func wait() { usleep(5_000) }
  func write(_ data: Data, key: CacheKey) async throws {
    wait()
    try await base.write(data, key: key)
  }
  func read(key: CacheKey) async throws -> Data? {
    wait()
    return try await base.read(key: key)
  }
  func remove(key: CacheKey) async throws {
    wait()
    try await base.remove(key: key)
  }
  func allKeys() async throws -> [CacheKey] { try await base.allKeys() }
  func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key) }
  func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }
}

/// Reads everything without suspending, however much it is.
struct KeepsItsThread: FaultyEngine {
  let base: ReferenceEngine
  let method: ReadMethod
  func readAllData() async throws -> [Data] {
    if method == .readAllData { return try base.everything().map(\.data) }
    return try await base.readAllData()
  }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    if method == .readAllDataAndKeys { return try base.everything() }
    return try await base.readAllDataAndKeys()
  }
  func readAllEntries() async throws -> [StorageEntry] {
    if method == .readAllEntries { return try base.entries() }
    return try await base.readAllEntries()
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    if method == .scan { return try base.everything().sorted { $0.key < $1.key } }
    return try await base.scan(range, limit: limit)
  }
}

/// Longer than a disk needs: short waits on a busy machine are usually waits for a processor, which is not the engine's
/// fault.
private func waitOnThisThread() { usleep(30_000) }

/// Blocks the caller's thread.
struct BlocksTheCaller: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    waitOnThisThread()
  }
}

struct BlocksRemovals: FaultyEngine {
  let base: ReferenceEngine
  func remove(key: CacheKey) async throws {
    try await base.remove(key: key)
    waitOnThisThread()
  }
}

struct BlocksBatches: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    waitOnThisThread()
  }
}

struct BlocksReaders: FaultyEngine {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    waitOnThisThread()
    return try await base.readAllDataAndKeys()
  }
}

/// Blocks the caller's thread in one kind of call.
final class BlocksOneCall: FaultyEngine {
  enum Call: String, CaseIterable, Sendable {
    case verify = "verify()"
    case changes = "changes()"
    case transaction = "withTransaction(_:)"
    case imports = "writeEntries(_:)"
    case removeAll = "removeAllData()"
    case readEntries = "readEntries(keys:)"
    case keysExist = "keysExist(_:)"
    case close = "close()"
    case closeDuringTransaction = "close() during a transaction"
    case closeDuringReads = "close() during reads"
  }
  /// So long that even a busy machine does not explain it.
  private static let microseconds: UInt32 = 100_000
  let base: ReferenceEngine
  private let call: Call
  /// The calls that `close()` waits for.
  private let underWay = MutexProtected((count: 0, isClosing: false))
  init(base: ReferenceEngine, call: Call) { (self.base, self.call) = (base, call) }
  private func wait(_ call: Call) { if call == self.call { usleep(Self.microseconds) } }
  private func heldUp<Result>(_ call: Call, by work: () async throws -> Result) async throws -> Result {
    guard call == self.call else { return try await work() }
    try underWay.withLock { underWay in
      if underWay.isClosing { throw StorageError(.closed, "The engine has been closed.") }
      underWay.count += 1
    }
    defer { underWay.withLock { $0.count -= 1 } }
    return try await work()
  }
  func close() async throws {
    wait(.close)
    underWay.withLock { $0.isClosing = true }
    while underWay.withLock({ $0.count }) > 0 { usleep(1_000) }
    try await base.close()
  }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await heldUp(.closeDuringReads) {
      if call == .closeDuringReads { try await Task.sleep(for: .microseconds(Self.microseconds)) }
      return try await base.readAllDataAndKeys()
    }
  }
  func verify() async throws {
    wait(.verify)
    try await base.verify()
  }
  func changes() async throws -> StorageChanges {
    wait(.changes)
    return try await base.changes()
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    wait(.transaction)
    return try await heldUp(.closeDuringTransaction) { try await base.withTransaction(body) }
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    wait(.imports)
    try await base.write(entries.map { ($0.key, $0.data) })
  }
  func removeAllData() async throws {
    wait(.removeAll)
    try await base.removeAllData()
  }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    wait(.readEntries)
    return try await base.readEntries(keys: keys)
  }
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    wait(.keysExist)
    return try await base.keysExist(keys)
  }
}

/// One of its calls never returns.
struct Hangs: FaultyEngine {
  let base: ReferenceEngine
  func keyCount() async throws -> Int {
    await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
    return 0
  }
}
