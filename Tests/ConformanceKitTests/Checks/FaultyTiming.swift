import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore

// Engines whose changes take effect at the wrong moment, or whose close() or verify() is wrong during other calls.

extension FaultyEngineCase {
  static let ofWrongTiming: [FaultyEngineCase] = [
    .init(.r6, "numbers entries before their turn") { LooksBeforeItsTurn(base: $0, .order) },
    .init(.w2, "looks at the clock before a write has its turn") { LooksBeforeItsTurn(base: $0, .updatedAt) },
    .init(persistent: .o3, "returns from a second close() at once") { ReturnsFromASecondClose(base: $0, $1) },
    .init(persistent: .o3, "verifies nothing when it is closed") { base, _ in
      VerifiesNothingWhenClosed(base: base)
    },
    .init(persistent: .f2, "takes empty values for torn ones") { base, _ in RefusesEmptyValues(base: base) },
    .init(persistent: .f2, "takes changes of another engine for corruption") { base, _ in
      ComparesWithItsIndex(base: base)
    },
    .init(
      persistent: .o3, "is closed under the body of a transaction",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, _ in ClosesUnderBodies(base: base) },
  ]
}

/// Reads the clock before a write waits for others, and uses that time for the order of entries, or for updatedAt.
final class LooksBeforeItsTurn: FaultyEngine {
  enum Use: Sendable { case order, updatedAt }
  let base: ReferenceEngine
  private let use: Use
  private let writerCount = MutexProtected(0)
  /// The times that were read early, of keys whose last write has waited.
  private let times = MutexProtected<[CacheKey: Date]>([:])
  init(base: ReferenceEngine, _ use: Use) { (self.base, self.use) = (base, use) }

  func write(_ data: Data, key: CacheKey) async throws {
    let now = Date()
    let isAlone = writerCount.withLock { count in
      count += 1
      return count == 1
    }
    defer { writerCount.withLock { $0 -= 1 } }
    if !isAlone { for _ in 0..<Int.random(in: 0...10) { await Task.yield() } }
    try await base.write(data, key: key)
    times.withLock { times in
      if isAlone {
        times[key] = nil
      } else if use == .updatedAt || times[key] == nil {
        times[key] = now
      }
    }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    guard let updated = try await base.updatedAt(key: key), let created = try await base.createdAt(key: key)
    else { return nil }
    guard use == .updatedAt, let time = times.withLock({ $0[key] }) else { return updated }
    return max(time, created)
  }
  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    guard use == .order else { return entries }
    let times = times.withLock { $0 }
    return entries.map { (times[$0.key] ?? $0.createdAt, $0) }.sorted { $0.0 < $1.0 }.map(\.1)
  }
}

/// Writes its entries to its file when it is closed. A second call of close() returns before that is done, so an engine
/// that is opened meanwhile finds nothing.
final class ReturnsFromASecondClose: FaultyEngine {
  let base: ReferenceEngine
  private let place: URL
  private let isClosing = MutexProtected(false)
  private static let unfinished = MutexProtected<Set<URL>>([])
  init(base: ReferenceEngine, _ place: URL) { (self.base, self.place) = (base, place) }

  func read(key: CacheKey) async throws -> Data? {
    Self.unfinished.withLock { $0.contains(place) } ? nil : try await base.read(key: key)
  }
  func close() async throws {
    let isFirst = isClosing.withLock { isClosing in
      defer { isClosing = true }
      return !isClosing
    }
    guard isFirst else { return }
    Self.unfinished.withLock { _ = $0.insert(place) }
    // Lets other calls run, as a write to a disk would.
    for _ in 0..<3_000 { await Task.yield() }
    try await base.close()
    Self.unfinished.withLock { _ = $0.remove(place) }
  }
}

/// Releases its handle when it is closed, even while it is in use. The changes of a running body are lost, although
/// they are acknowledged.
final class ClosesUnderBodies: FaultyEngine {
  private struct HandleIsGone: Error {}
  let base: ReferenceEngine
  private let isClosed = MutexProtected(false)
  init(base: ReferenceEngine) { self.base = base }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try Task.checkCancellation()
    return try await onDedicatedThread { [self] in
      var result: Result?
      do {
        try base.transact { transaction in
          result = try body(transaction)
          if isClosed.withLock({ $0 }) { throw HandleIsGone() }
        }
      } catch is HandleIsGone {}
      guard let result else { throw StorageError(.closed, "The engine has been closed.") }
      return result
    }
  }
  func close() async throws {
    isClosed.withLock { $0 = true }
    try await base.close()
  }
}

/// Once closed, verify() returns instead of throwing `closed`.
struct VerifiesNothingWhenClosed: FaultyEngine {
  let base: ReferenceEngine
  func verify() async throws {
    do {
      try await base.verify()
    } catch let error as StorageError where error.code == .closed {}
  }
}

struct RefusesEmptyValues: FaultyEngine {
  let base: ReferenceEngine
  func verify() async throws {
    for entry in try await base.readAllEntries() where entry.data.isEmpty {
      throw StorageError(.corrupted, "The value of \(entry.key) is torn.")
    }
  }
}

/// Compares the entries with an index of what it has written itself.
final class ComparesWithItsIndex: FaultyBatchEngine {
  let base: ReferenceEngine
  private let index = MutexProtected<[CacheKey: Data]>([:])
  init(base: ReferenceEngine) { self.base = base }

  func removeAllData() async throws { try await apply([.removeAll]) }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await write(entries.map { ($0.key, $0.data) })
  }
  func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    try index.withLock { index in
      try base.commit(operations)
      for operation in operations {
        switch operation {
        case .write(let data, let key): index[key] = data
        case .remove(let key): index[key] = nil
        case .removeAll: index = [:]
        }
      }
    }
  }
  func verify() async throws {
    try index.withLock { index in
      let found = Dictionary(uniqueKeysWithValues: try base.everything().map { ($0.key, $0.data) })
      for (key, data) in index where found[key] != data {
        throw StorageError(.corrupted, "The checksum of \(key) does not match.")
      }
    }
  }
}
