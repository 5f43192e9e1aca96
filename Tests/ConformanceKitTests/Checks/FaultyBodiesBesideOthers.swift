@testable import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines with transactions that only work without concurrent calls, and for a short time.

extension FaultyEngineCase {
  /// Fails beside another engine on its place.
  static let cachesByGeneration = FaultyEngineCase(
    persistent: .c2, "caches what it has read under the generation of later", also: [.c1, .w1, .r2, .t1]
  ) { base, place in CachesByGeneration(base: base, place: place) }

  static let ofBodiesBesideOthers: [FaultyEngineCase] = [
    inMemory(.t1, "looks again at the last 256 keys that a body has read") {
      LooksAgainAtSome(base: $0, ofRequests: false) { Array($0.suffix(256)) }
    },
    inMemory(.t1, "looks again at the last 256 keys that a body has read, in requests too") {
      LooksAgainAtSome(base: $0, ofRequests: true) { Array($0.suffix(256)) }
    },
    inMemory(.t1, "looks again at the first 100 keys that a body has read") {
      LooksAgainAtSome(base: $0, ofRequests: false) { Array($0.prefix(100)) }
    },
    inMemory(.t1, "looks again at the first 100 keys of each request of a body") {
      LooksAgainAtSome(base: $0, ofRequests: true) {
        $0
      } ofRequest: {
        Array($0.prefix(100))
      }
    },
    inMemory(.t1, "validates bodies against the last 64 changes") {
      LogsSomeChanges(base: $0, changes: 64)
    },
    inMemory(.t1, "validates bodies against the first 100 keys of each batch") {
      LogsSomeChanges(base: $0, keysOfEach: 100)
    },
    inMemory(.t1, "runs bodies at the same time on one snapshot") { SharesCopies(base: $0) },
    cachesByGeneration,
    inMemory(.t1, "admits others after half a second", also: [.t2]) { LeasesItsLock(base: $0) },
    inMemory(.t1, "says that there is what a body has written and not committed") {
      ShowsKeysEarly(base: $0)
    },
    inMemory(.w2, "dates what a transaction has written by its beginning", also: [.t2, .t4]) {
      DatesByTheBeginning(base: $0)
    },
    inMemory(.r6, "orders what a transaction has written by its beginning", also: [.w2]) {
      OrdersByTheBeginning(base: $0)
    },
    .init(
      persistent: .w2, "reads the clock before it waits for its place", also: [.t2, .t4],
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, place in ReadsTheClockEarly(base: base, place: place) },
    .init(
      persistent: .o3, "waits no longer than 300 ms for a body when it is closed",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, _ in ClosesInTheEnd(base: base) },
    .init(
      persistent: .t1, "takes back what a body has done when another engine is opened", also: [.t2, .t4],
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, place in RollsBack(base: base, place: place, when: .opened) },
    .init(
      persistent: .t1, "takes back what a body has done when another engine is closed", also: [.t2, .t4],
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, place in RollsBack(base: base, place: place, when: .closed) },
  ]
}

/// Caches values with the number of writes to the place, but reads that number after the value.
final class CachesByGeneration: FaultyBatchEngine {
  private static let generations = MutexProtected<[String: Int]>([:])
  let base: ReferenceEngine
  private let place: String
  private let cache = MutexProtected<[CacheKey: (data: Data?, generation: Int)]>([:])
  init(base: ReferenceEngine, place: URL) { (self.base, self.place) = (base, place.path) }

  private var generation: Int { Self.generations.withLock { $0[place] ?? 0 } }

  func read(key: CacheKey) async throws -> Data? {
    let current = generation
    if let cached = cache.withLock({ $0[key] }), cached.generation == current { return cached.data }
    let data = try await base.read(key: key)
    await Task.yield()
    cache.withLock { $0[key] = (data, generation) }
    return data
  }

  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    Self.generations.withLock { $0[place, default: 0] += 1 }
  }

  func removeAllData() async throws { try await apply([.removeAll]) }
}

/// Serializes its own calls, and reads the clock before it waits for the other engines on the place.
final class ReadsTheClockEarly: FaultyEngine {
  private final class Place: Sendable {
    let turns = AsyncSemaphore(width: 1)
    let times = MutexProtected<[CacheKey: Date]>([:])
  }
  private static let places = MutexProtected<[String: Place]>([:])
  let base: ReferenceEngine
  private let place: Place
  private let turns = AsyncSemaphore(width: 1)
  init(base: ReferenceEngine, place: URL) {
    self.base = base
    self.place = Self.places.withLock { places in
      let known = places[place.path] ?? Place()
      places[place.path] = known
      return known
    }
  }
  func write(_ data: Data, key: CacheKey) async throws {
    await turns.enter()
    defer { turns.leave() }
    let now = Date()
    await place.turns.enter()
    defer { place.turns.leave() }
    try await base.write(data, key: key)
    place.times.withLock { $0[key] = now }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    await turns.enter()
    defer { turns.leave() }
    await place.turns.enter()
    defer { place.turns.leave() }
    let before = try await base.readAllEntries()
    let result = try await base.withTransaction(body)
    for entry in try await base.readAllEntries() where !before.contains(entry) {
      place.times.withLock { $0[entry.key] = nil }
    }
    return result
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    guard let date = try await base.updatedAt(key: key) else { return nil }
    let early = place.times.withLock { $0[key] }
    // If the times differ by more, the entry has been written again since.
    return early.map { date.timeIntervalSince($0) < 1 ? $0 : date } ?? date
  }
}

/// Holds a lock for half a second. Afterwards, the reads of a body still count although they may be stale.
final class LeasesItsLock: FaultyEngine {
  let base: ReferenceEngine
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let start = ContinuousClock.now
    let (result, operations) = try await runOnCopy(body)
    // While the lock is held, no other engine writes: the body can run again.
    if ContinuousClock.now - start < .milliseconds(500) { return try await base.withTransaction(body) }
    try await base.apply(operations)
    return result
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

/// Runs bodies on a copy while others write, and again if they have written. Gives the writes of a body the time at
/// which it began.
final class DatesByTheBeginning: FaultyEngine {
  let base: ReferenceEngine
  private let dates = MutexProtected<[CacheKey: Date]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let begin = Date()
    let (result, operations, _) = try await runOnCopyUntilAlone(body)
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

/// Rolls back the journal that it finds when it is opened, even that of a running body, or releases its lock when
/// another engine is closed.
struct RollsBack: FaultyEngine {
  enum Event: String { case opened, closed }
  private static let events = MutexProtected<[String: Int]>([:])
  let base: ReferenceEngine
  private let name: String
  private let event: Event
  init(base: ReferenceEngine, place: URL, when event: Event) {
    (self.base, self.event) = (base, event)
    name = "\(event) \(place.path)"
    if event == .opened { note() }
  }
  private func note() { Self.events.withLock { [name] in $0[name, default: 0] += 1 } }
  private var count: Int { Self.events.withLock { [name] in $0[name] ?? 0 } }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let before = count
    return try await withTransaction(lostIf: { count != before }, body)
  }
  func close() async throws {
    if event == .closed { note() }
    try await base.close()
  }
}

/// Runs bodies on a copy, and again if others have written. Gives new keys the position that was next when the body
/// began.
final class OrdersByTheBeginning: FaultyEngine {
  let base: ReferenceEngine
  private let order = MutexProtected<[CacheKey]>([])
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let place = try await base.keyCount()
    let (result, _, before) = try await runOnCopyUntilAlone(body)
    var keys = before.map(\.key)
    let new = try await base.readAllEntries().map(\.key).filter { !keys.contains($0) }
    keys.insert(contentsOf: new, at: min(place, keys.count))
    order.withLock { $0 = keys }
    return result
  }
  func readAllEntries() async throws -> [StorageEntry] {
    let (entries, order) = (try await base.readAllEntries(), order.withLock { $0 })
    let known = order.compactMap { key in entries.first { $0.key == key } }
    return known + entries.filter { !order.contains($0.key) }
  }
}

/// Waits for bodies for up to 300 ms when it is closed, and loses their later changes.
final class ClosesInTheEnd: FaultyEngine {
  let base: ReferenceEngine
  private let state = MutexProtected((bodies: 0, isClosed: false))
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    state.withLock { $0.bodies += 1 }
    defer { state.withLock { $0.bodies -= 1 } }
    return try await withTransaction(lostIf: { [self] in state.withLock { $0.isClosed } }, body)
  }
  func close() async throws {
    let end = ContinuousClock.now + .milliseconds(300)
    while state.withLock({ $0.bodies > 0 }), ContinuousClock.now < end {
      try await Task.sleep(for: .milliseconds(5))
    }
    state.withLock { $0.isClosed = true }
    try await base.close()
  }
}
