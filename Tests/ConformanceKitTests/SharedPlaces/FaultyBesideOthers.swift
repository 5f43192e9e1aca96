@testable import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that only work with one other engine, or outside of transactions.

extension FaultyEngineCase {
  static let besideOthers: [FaultyEngineCase] = [
    .init(persistent: .c2, "notifies one other engine of changed values") {
      base, place in NotifiesOneOther(base: base, place: place)
    },
    .init(persistent: .c2, "does not notify others of what it imports") { base, place in
      AnnouncesMostChanges(base: base, place: place, silentMethod: .writeEntries)
    },
    .init(persistent: .c2, "receives the last thousand changes of others") { base, place in
      ReceivesAThousandChanges(base: base, place: place)
    },
    .init(
      persistent: .c2, "does not notify others of its transactions",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, place in AnnouncesMostChanges(base: base, place: place, silentMethod: .transaction) },
    .init(persistent: .c2, "empties its own list of keys when it removes everything") { base, _ in
      EmptiesItsList(base: base)
    },
    .init(persistent: .c2, "writes all that it knows when it removes keys") { base, _ in
      WritesAllThatItKnows(base: base)
    },
    .init(persistent: .c2, "remembers when others had changed entries") { base, _ in
      RemembersTimes(base: base)
    },
    .init(persistent: .c2, "compares versions of entries, which begin again") { base, place in
      ComparesVersions(base: base, place: place)
    },
    .init(
      persistent: .c2, "keeps a copy of everything for bodies that only read",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, _ in KeepsACopyForReaders(base: base) },
  ]
}

/// Caches values once three engines are on a place, and only notifies the one that was opened last of changes.
final class NotifiesOneOther: InterceptingEngine {
  private struct Weak: Sendable { weak var engine: NotifiesOneOther? }
  private static let engines = MutexProtected<[String: [Weak]]>([:])
  let base: ReferenceEngine
  private let place: String
  private let values = MutexProtected<[CacheKey: Data]>([:])
  init(base: ReferenceEngine, place: URL) {
    (self.base, self.place) = (base, place.path)
    Self.engines.withLock { $0[place.path, default: []].append(Weak(engine: self)) }
  }
  private var all: [NotifiesOneOther] {
    Self.engines.withLock { [place] in ($0[place] ?? []).compactMap(\.engine) }
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    defer {
      for engine in isChange ? [self, all.last { $0 !== self }].compactMap({ $0 }) : [] {
        engine.values.withLock { $0 = [:] }
      }
    }
    return try await work()
  }
  func read(key: CacheKey) async throws -> Data? {
    if all.count < 3 { return try await base.read(key: key) }
    if let value = values.withLock({ $0[key] }) { return value }
    let value = try await base.read(key: key)
    values.withLock { $0[key] = value }
    return value
  }
  func close() async throws {
    Self.engines.withLock { [place] in $0[place]?.removeAll { $0.engine === self } }
    try await base.close()
  }
}

/// Caches values until it or another engine on its place reports a change. One method does not report any.
final class AnnouncesMostChanges: InterceptingEngine {
  private static let versions = MutexProtected<[String: Int]>([:])
  let base: ReferenceEngine
  private let place: String
  private let silentMethod: ChangeMethod
  private let remembered = MutexProtected<(version: Int, values: [CacheKey: Data])>((0, [:]))
  init(base: ReferenceEngine, place: URL, silentMethod: ChangeMethod) {
    (self.base, self.place, self.silentMethod) = (base, place.path, silentMethod)
  }
  private func changed(by method: ChangeMethod? = nil) {
    remembered.withLock { $0.values = [:] }
    if method != silentMethod { Self.versions.withLock { [place] in $0[place, default: 0] += 1 } }
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    defer { if isChange { changed() } }
    return try await work()
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.writeEntries(entries)
    changed(by: .writeEntries)
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let (result, operations, _) = try await runOnCopyUntilAlone(body)
    if !operations.isEmpty { changed(by: .transaction) }
    return result
  }
  func read(key: CacheKey) async throws -> Data? {
    let version = Self.versions.withLock { [place] in $0[place] ?? 0 }
    if let value = remembered.withLock({ $0.version == version ? $0.values[key] : nil }) { return value }
    let value = try await base.read(key: key)
    remembered.withLock {
      if $0.version != version { $0 = (version, [:]) }
      $0.values[key] = value
    }
    return value
  }
}

/// Has a list of keys, which is up to date once it has been read. Removes everything by removing the keys of this list.
final class EmptiesItsList: FaultyBatchEngine {
  let base: ReferenceEngine
  private let keys = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    keys.withLock { $0.formUnion(operations.compactMap(\.keyOfChange)) }
  }
  func allKeys() async throws -> [CacheKey] {
    let found = try await base.allKeys()
    keys.withLock { $0 = Set(found) }
    return found
  }
  func removeAllData() async throws {
    let known = keys.withLock { keys in
      defer { keys = [] }
      return Array(keys)
    }
    try await base.remove(keys: known)
  }
}

/// Has a copy of all values, which is up to date once everything has been read. Removes keys by taking them from the
/// copy, and writing it over the values.
final class WritesAllThatItKnows: FaultyBatchEngine {
  let base: ReferenceEngine
  private let values = MutexProtected<[CacheKey: Data]>([:])
  init(base: ReferenceEngine) { self.base = base }
  private func read() async throws {
    let found = try await base.readAllDataAndKeys().map { ($0.key, $0.data) }
    values.withLock { $0 = Dictionary(uniqueKeysWithValues: found) }
  }
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    try await read()
  }
  func removeAllData() async throws { try await apply([.removeAll]) }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await read()
    return try await base.readAllDataAndKeys()
  }
  func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    if keys.isEmpty { return }
    let known = values.withLock { values in
      for key in keys { values[key] = nil }
      return values
    }
    let unknown = try await base.allKeys().filter { known[$0] == nil }
    try await base.remove(keys: unknown)
  }
}

/// Caches the times of entries until it changes any itself.
final class RemembersTimes: InterceptingEngine {
  let base: ReferenceEngine
  private let times = MutexProtected<[CacheKey: (created: Date, updated: Date)]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    defer { if isChange { times.withLock { $0 = [:] } } }
    return try await work()
  }
  private func dated(_ entry: StorageEntry) -> StorageEntry {
    times.withLock { times in
      let known = times[entry.key] ?? (entry.createdAt, entry.updatedAt)
      times[entry.key] = known
      return StorageEntry(
        key: entry.key, data: entry.data, createdAt: known.created, updatedAt: known.updated)
    }
  }
  private func entry(of key: CacheKey) async throws -> StorageEntry? {
    try await base.readEntries(keys: [key]).first.map(dated)
  }
  func createdAt(key: CacheKey) async throws -> Date? { try await entry(of: key)?.createdAt }
  func updatedAt(key: CacheKey) async throws -> Date? { try await entry(of: key)?.updatedAt }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await base.readEntries(keys: keys).map(dated)
  }
  func readAllEntries() async throws -> [StorageEntry] { try await base.readAllEntries().map(dated) }
}

/// Identifies the origins of changes by numbers. Its own stores and those of another engine have the same numbers.
final class NumbersOrigins: FaultyEngine {
  private static let shared = (0..<100).map { _ in ChangeOrigin() }
  let base: ReferenceEngine
  private let known = MutexProtected<[ChangeOrigin]>([])
  init(base: ReferenceEngine) { self.base = base }
  private func withNumber<Result: Sendable>(
    _ work: @Sendable () async throws -> Result
  ) async throws -> Result {
    guard let current = ChangeOrigin.current else { return try await work() }
    let number = known.withLock { known in
      if let number = known.firstIndex(where: { $0 === current }) { return number }
      known.append(current)
      return known.count - 1
    }
    return try await ChangeOrigin.$current.withValue(Self.shared[number]) { try await work() }
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try await withNumber { [base] in try await base.write(data, key: key) }
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await withNumber { [base] in try await base.write(dataAndKeys) }
  }
  func remove(key: CacheKey) async throws {
    try await withNumber { [base] in try await base.remove(key: key) }
  }
  func remove(keys: [CacheKey]) async throws {
    try await withNumber { [base] in try await base.remove(keys: keys) }
  }
  func removeAllData() async throws { try await withNumber { [base] in try await base.removeAllData() } }
  func apply(_ operations: [StorageOperation]) async throws {
    try await withNumber { [base] in try await base.apply(operations) }
  }
  func changes() async throws -> StorageChanges {
    try await withNumber { [base] in try await base.changes() }.passedOn()
  }
}

/// Gives a transaction without an origin that of the last change that had one, as one thread for all transactions
/// might.
final class HasTheOriginOfTheLast: InterceptingEngine {
  let base: ReferenceEngine
  private let last = MutexProtected<ChangeOrigin?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    if isChange, let current = ChangeOrigin.current { last.withLock { $0 = current } }
    return try await work()
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let origin = ChangeOrigin.current ?? last.withLock { $0 }
    return try await ChangeOrigin.$current.withValue(origin) { try await base.withTransaction(body) }
  }
}

/// Runs read-only bodies on a copy, which is renewed after this engine has written, or after 300 ms.
final class KeepsACopyForReaders: InterceptingEngine {
  let base: ReferenceEngine
  private let copy = MutexProtected<(entries: [CacheKey: Data], until: ContinuousClock.Instant)?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    defer { if isChange { copy.withLock { $0 = nil } } }
    return try await work()
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    if let kept = copy.withLock({ $0 }), kept.until > .now {
      let transaction = CopyTransaction(kept.entries)
      if let result = try? body(transaction), transaction.end().isEmpty { return result }
    }
    let before = try await base.readAllDataAndKeys().map { ($0.key, $0.data) }
    let (result, operations) = try await runOnCopy(body)
    if operations.isEmpty {
      copy.withLock { $0 = (Dictionary(uniqueKeysWithValues: before), .now + .milliseconds(300)) }
      return result
    }
    return try await call(isChange: true) { [self] in try await base.withTransaction(body) }
  }
}
