import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import StockroomMemory
import TestFixtures

// Engines whose bodies go wrong with large results, unusual keys, bounds and values, removals, or imports.

extension FaultyEngineCase {
  static let ofBodies: [FaultyEngineCase] = [
    inMemory(.t2, "a body reads the first mebibyte of many values") {
      AltersTransactions(base: $0) { ReadsOneMebibyte($0, .readMany) }
    },
    inMemory(.t2, "a body scans the first mebibyte") {
      AltersTransactions(base: $0) { ReadsOneMebibyte($0, .scan) }
    },
    inMemory(.t2, "a body takes keys of the same characters for one") {
      AltersTransactions(base: $0) { ComparesCharacters($0) }
    },
    inMemory(.t2, "a body looks at a hundred entries more than a scan may have") {
      AltersTransactions(base: $0) { try LooksAtSomeMore($0, 100) }
    },
    inMemory(.t2, "what a body writes after removeAll() is as old as before", also: [.t1]) {
      KeepsDatesBeyondRemovals(base: $0)
    },
    inMemory(.v3, "a body reads what it has written as it gave it", also: [.t2]) {
      AltersTransactions(base: $0) { ReadsWhatItGave($0) }
    },
    inMemory(.t2, "a body does not write what is there already") {
      AltersTransactions(base: $0) { SkipsWhatIsThere($0) }
    },
    inMemory(.t2, "a body takes a prefix for a pattern") {
      AltersTransactions(base: $0) { ScansByPatterns($0) }
    },
    inMemory(.t3, "restores what a body that threw had removed, beside what it had written") {
      RestoresBesideWrites(base: $0)
    },
    inMemory(.t4, "a body scans up to what is no key") {
      AltersTransactions(base: $0) { ScansUpToAnything($0) }
    },
    inMemory(.t2, "takes an empty entry of others for a removal") {
      AltersTransactions(base: $0) { TakesEmptyForRemoved($0) }
    },
    inMemory(.w2, "has another clock for transactions", also: [.t2]) { DatesByAnotherClock(base: $0) },
    .init(
      .r6, "orders entries of others by their times in a body", also: [.t2],
      claiming: claimsOfTransactions.union(.preservesTimestamps)
    ) { _ in SortsWrittenEntries(base: MemoryStorageEngine()) },
    .init(
      .r6, "orders entries of others by their times until a body reads", also: [.t2],
      claiming: claimsOfTransactions.union(.preservesTimestamps)
    ) { _ in SortsWrittenEntries(base: MemoryStorageEngine(), untilRead: true) },
  ]
}

/// Simulates a service that limits the bytes of an answer.
final class ReadsOneMebibyte: ForwardingTransaction {
  enum Call { case readMany, scan }
  private let call: Call
  init(_ base: any StorageTransaction, _ call: Call) {
    self.call = call
    super.init(base)
  }
  override func read(keys: [CacheKey]) throws -> [Data] {
    var bytes = 0
    return try base.read(keys: keys).filter { value in
      bytes += value.count
      return call != .readMany || bytes <= 1 << 20
    }
  }
  override func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    var bytes = 0
    return try base.scan(range, limit: limit).filter { _, value in
      bytes += value.count
      return call != .scan || bytes <= 1 << 20
    }
  }
}

/// Finds the keys that a body writes by strings, which are equal if they are canonically equivalent.
final class ComparesCharacters: ForwardingTransaction {
  private var names: [String: CacheKey] = [:]
  private func name(_ key: CacheKey) -> CacheKey { names[key.value] ?? key }
  override func write(_ data: Data, key: CacheKey) throws {
    try base.write(data, key: name(key))
    names[key.value] = name(key)
  }
  override func read(key: CacheKey) throws -> Data? { try base.read(key: name(key)) }
  override func read(keys: [CacheKey]) throws -> [Data] { try base.read(keys: keys.map(name)) }
  override func keyExists(_ key: CacheKey) throws -> Bool { try base.keyExists(name(key)) }
  override func remove(key: CacheKey) throws { try base.remove(key: name(key)) }
}

/// Skips a write of the value that is stored.
final class SkipsWhatIsThere: ForwardingTransaction {
  override func write(_ data: Data, key: CacheKey) throws {
    if try base.read(key: key) != data { try base.write(data, key: key) }
  }
}

/// Compares with LIKE.
final class ScansByPatterns: ForwardingTransaction {
  override func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    guard let prefix = range.prefix, prefix.utf8.count < 100 else {
      return try base.scan(range, limit: limit)
    }
    var rest = range
    rest.prefix = nil
    let found = try base.scan(rest, limit: nil).filter {
      TakesPrefixesForPatterns.isLike(Array($0.key.value.utf8), prefix: prefix)
    }
    return Array(found.prefix(max(0, limit ?? .max)))
  }
}

/// When a body has removed everything and thrown, restores what it had removed, but does not remove what it has
/// written since.
struct RestoresBesideWrites: FaultyEngine {
  private struct ThrownError: Error { let error: any Error }

  let base: ReferenceEngine
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { transaction -> Swift.Result<Result, ThrownError> in
      let before = try transaction.scan(.all, limit: nil).map { ($0.key, $0.data) }
      let copy = CopyTransaction(Dictionary(uniqueKeysWithValues: before))
      defer { copy.end() }
      let result: Result
      do {
        result = try body(copy)
      } catch {
        let rest = copy.operations.drop { if case .removeAll = $0 { false } else { true } }
        for case .write(let data, let key) in rest where try !transaction.keyExists(key) {
          try transaction.write(data, key: key)
        }
        return .failure(ThrownError(error: error))
      }
      try transaction.apply(copy.end())
      return .success(result)
    }.mapError(\.error).get()
  }
}

/// Scans a few more stored entries than the limit, to make up for those that the body has removed.
final class LooksAtSomeMore: ForwardingTransaction {
  private let stored: [CacheKey]
  private let more: Int
  init(_ base: any StorageTransaction, _ more: Int) throws {
    stored = try base.scan(.all, limit: nil).map(\.key)
    self.more = more
    super.init(base)
  }
  override func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    let found = try base.scan(range, limit: limit)
    guard let limit, limit > 0, limit < stored.count else { return found }
    let seen = stored.filter { range.contains($0) }.prefix(limit + more)
    guard seen.count == limit + more, let last = seen.last else { return found }
    return found.filter { !(last < $0.key) }
  }
}

/// If a body calls `removeAll()`, entries that are written later keep the creation times from before.
final class KeepsDatesBeyondRemovals: FaultyEngine {
  let base: ReferenceEngine
  private let created = MutexProtected<[CacheKey: Date]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let before = try await base.readAllEntries()
    let hasRemoved = MutexProtected(false)
    let result = try await base.withTransaction {
      try body(NotesRemovals($0) { hasRemoved.withLock { $0 = true } })
    }
    if hasRemoved.withLock({ $0 }) {
      created.withLock { created in for entry in before { created[entry.key] = entry.createdAt } }
    }
    return result
  }
  func readAllEntries() async throws -> [StorageEntry] {
    try await base.readAllEntries().map { entry in
      var entry = entry
      entry.createdAt = created.withLock { $0[entry.key] } ?? entry.createdAt
      return entry
    }
  }
}

private final class NotesRemovals: ForwardingTransaction {
  private let note: () -> Void
  init(_ base: any StorageTransaction, note: @escaping () -> Void) {
    self.note = note
    super.init(base)
  }
  override func removeAll() throws {
    try base.removeAll()
    note()
  }
}

/// Validates the beginning of a scan, but not its end.
final class ScansUpToAnything: ForwardingTransaction {
  override func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    if let end = range.upTo, !(1...511).contains(end.value.utf8.count) { return [] }
    return try base.scan(range, limit: limit)
  }
}

/// Treats the import of an empty entry as the removal of its key.
final class TakesEmptyForRemoved: ForwardingTransaction {
  override func writeEntry(_ entry: StorageEntry) throws {
    if entry.data.isEmpty { try base.remove(key: entry.key) } else { try base.writeEntry(entry) }
  }
}

/// Reads of the body's own writes return the very data that was passed in.
final class ReadsWhatItGave: ForwardingTransaction {
  private var given: [CacheKey: Data] = [:]
  override func write(_ data: Data, key: CacheKey) throws {
    try base.write(data, key: key)
    given[key] = data
  }
  override func read(key: CacheKey) throws -> Data? {
    guard let data = try base.read(key: key) else { return nil }
    return given[key] == data ? given[key] : data
  }
}

/// Imports new entries at the end of a body, sorted by their creation times.
struct SortsWrittenEntries: FaultyEngine {
  let base: MemoryStorageEngine
  /// Whether the order of entries that were written before a read is kept.
  var untilRead = false
  private final class CollectingTransaction: ForwardingTransaction {
    private var new: [StorageEntry] = []
    private let untilRead: Bool
    init(_ base: any StorageTransaction, untilRead: Bool) {
      self.untilRead = untilRead
      super.init(base)
    }
    override func writeEntry(_ entry: StorageEntry) throws {
      if try !base.keyExists(entry.key) { new.append(entry) }
      try base.writeEntry(entry)
    }
    override func read(key: CacheKey) throws -> Data? {
      if untilRead { new = [] }
      return try base.read(key: key)
    }
    func sort() throws {
      for entry in new { try base.remove(key: entry.key) }
      for entry in new.sorted(by: { $0.createdAt < $1.createdAt }) { try base.writeEntry(entry) }
    }
  }
  func writeEntries(_ entries: [StorageEntry]) async throws { try await base.writeEntries(entries) }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { transaction in
      let collecting = CollectingTransaction(transaction, untilRead: untilRead)
      let result = try body(collecting)
      try collecting.sort()
      return result
    }
  }
}

/// Dates the writes of transactions by a clock that is an hour slow.
final class DatesByAnotherClock: FaultyEngine {
  let base: ReferenceEngine
  private let dates = MutexProtected<[CacheKey: Date]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let (result, operations) = try await runOnCopy(body)
    try await base.apply(operations)
    dates.withLock { dates in
      for case .write(_, let key) in operations { dates[key] = Date() - 3_600 }
    }
    return result
  }
  func createdAt(key: CacheKey) async throws -> Date? {
    try await base.createdAt(key: key).map { date in dates.withLock { $0[key] } ?? date }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try await base.updatedAt(key: key).map { date in dates.withLock { $0[key] } ?? date }
  }
}
