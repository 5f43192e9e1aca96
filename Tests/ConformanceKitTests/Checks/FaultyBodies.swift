import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines whose bodies are right about few short keys and small values, and for a short time.

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
    inMemory(.t1, "lets others in after half a second", also: [.t2]) { LeasesItsLock(base: $0) },
    inMemory(.t2, "takes an empty entry of others for a removal") {
      AltersTransactions(base: $0) { TakesEmptyForRemoved($0) }
    },
    inMemory(.t1, "says that there is what a body has written and not committed") {
      ShowsKeysEarly(base: $0)
    },
    inMemory(.w2, "dates what a transaction has written by its beginning", also: [.t2, .t4]) {
      DatesByTheBeginning(base: $0)
    },
    .init(
      persistent: .t1, "takes back what a body has done when another engine is opened", also: [.t2, .t4],
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, place in RollsBackWhenOpened(base: base, place: place) },
  ]
}

/// As a service that answers with so many bytes.
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

/// Keeps what a body does by strings, which compare characters.
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

/// Looks for as many stored entries as a scan may have and some more, for those that the body has removed.
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
    guard let limit, limit > 0 else { return found }
    let seen = stored.filter { range.contains($0) }.prefix(limit + more)
    guard seen.count == limit + more, let last = seen.last else { return found }
    return found.filter { !(last < $0.key) }
  }
}

/// Keeps when entries were created, whatever a body removes, and dates what it has written.
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

/// Has a lock for half a second; what a body has read by then counts, whatever becomes of it.
final class LeasesItsLock: FaultyEngine {
  let base: ReferenceEngine
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let before = try await base.readAllDataAndKeys()
    let thread = DedicatedThread()
    defer { thread.stop() }
    let start = ContinuousClock.now
    let (result, operations) = try await thread.run {
      let copy = CopyTransaction(Dictionary(uniqueKeysWithValues: before.map { ($0.key, $0.data) }))
      return (try body(copy), copy.end())
    }
    // As long as the lock is held nobody else has come in: the body can run again.
    if ContinuousClock.now - start < .milliseconds(500) { return try await base.withTransaction(body) }
    try await base.apply(operations)
    return result
  }
}

/// Stores no value of no bytes.
final class TakesEmptyForRemoved: ForwardingTransaction {
  override func writeEntry(_ entry: StorageEntry) throws {
    if entry.data.isEmpty { try base.remove(key: entry.key) } else { try base.writeEntry(entry) }
  }
}

/// Has an index of keys that bodies write to before they commit.
final class ShowsKeysEarly: FaultyEngine {
  let base: ReferenceEngine
  private let index = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }
  private final class Indexing: ForwardingTransaction {
    let note: (CacheKey) -> Void
    init(_ base: any StorageTransaction, note: @escaping (CacheKey) -> Void) {
      self.note = note
      super.init(base)
    }
    override func write(_ data: Data, key: CacheKey) throws {
      try base.write(data, key: key)
      note(key)
    }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    defer { index.withLock { $0 = [] } }
    return try await base.withTransaction { [self] transaction in
      try body(Indexing(transaction) { [self] key in index.withLock { _ = $0.insert(key) } })
    }
  }
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    let existing = try await base.keysExist(keys)
    return keys.filter { key in existing.contains(key) || index.withLock { $0.contains(key) } }
  }
}

/// Runs bodies on a copy, beside which others write, and gives what they wrote the time at which they began.
final class DatesByTheBeginning: FaultyEngine {
  let base: ReferenceEngine
  private let dates = MutexProtected<[CacheKey: Date]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let (begin, before) = (Date(), try await base.readAllDataAndKeys())
    let thread = DedicatedThread()
    defer { thread.stop() }
    let (result, operations) = try await thread.run {
      let copy = CopyTransaction(Dictionary(uniqueKeysWithValues: before.map { ($0.key, $0.data) }))
      return (try body(copy), copy.end())
    }
    try await base.apply(operations)
    dates.withLock { dates in
      for case .write(_, let key) in operations { dates[key] = begin }
    }
    return result
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    dates.withLock { dates in for (key, _) in dataAndKeys { dates[key] = nil } }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    guard let date = try await base.updatedAt(key: key) else { return nil }
    return dates.withLock { $0[key] } ?? date
  }
}

/// Rolls back the journal that an opening finds, also that of a body that is running.
struct RollsBackWhenOpened: FaultyEngine {
  private struct RolledBack: Error {}
  private static let openings = MutexProtected<[String: Int]>([:])
  let base: ReferenceEngine
  private let place: String
  init(base: ReferenceEngine, place: URL) {
    (self.base, self.place) = (base, place.path)
    Self.openings.withLock { [place = self.place] in $0[place, default: 0] += 1 }
  }
  private var openings: Int { Self.openings.withLock { [place] in $0[place] ?? 0 } }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let before = openings
    let results = MutexProtected<[Result]>([])
    do {
      return try await base.withTransaction { transaction in
        let result = try body(transaction)
        if openings == before { return result }
        results.withLock { $0.append(result) }
        throw RolledBack()
      }
    } catch let error as RolledBack {
      guard let result = results.withLock({ $0.last }) else { throw error }
      return result
    }
  }
}
