import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that break when one thing has been done very often, or nothing for long.

/// Gives entries the generation in which they were written, of which there are 256.
final class CountsGenerations: FaultyEngine {
  let base: ReferenceEngine
  private let state = MutexProtected((generation: 0, first: [(key: CacheKey, data: Data)]()))
  init(base: ReferenceEngine) { self.base = base }
  func removeAllData() async throws {
    let entries = try await base.readAllDataAndKeys()
    try await base.removeAllData()
    let revived = state.withLock { state in
      if state.generation % 256 == 0, state.first.isEmpty { state.first = entries }
      state.generation += 1
      return state.generation % 256 == 0 ? state.first : []
    }
    try await base.write(revived)
  }
}

/// Keeps what a call that threw has taken, of which there is no end, but for one kind of call.
final class LeaksPerError: FaultyEngine {
  enum Call { case refusedScan, thrownBody }
  let base: ReferenceEngine
  private let call: Call
  private let count = MutexProtected(0)
  init(base: ReferenceEngine, _ call: Call) { (self.base, self.call) = (base, call) }
  private func limit<Result>(
    _ call: Call, to limit: Int, _ work: () async throws -> Result
  ) async throws -> Result {
    guard call == self.call else { return try await work() }
    if count.withLock({ $0 >= limit }) { throw StorageError(.locked, "Nothing has become free in time.") }
    do {
      return try await work()
    } catch {
      count.withLock { $0 += 1 }
      throw error
    }
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await self.limit(.refusedScan, to: 64) { try await base.scan(range, limit: limit) }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await limit(.thrownBody, to: 32) { try await base.withTransaction(body) }
  }
}

/// Finds that a server has hung up by the call that fails.
final class LosesIdleConnections: InterceptingEngine {
  let base: ReferenceEngine
  private let last = MutexProtected(ContinuousClock.now)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let now = ContinuousClock.now
    let pause = last.withLock { last in
      defer { last = now }
      return now - last
    }
    if pause > .seconds(10) { throw StorageError(.io, "Broken pipe.") }
    return try await work()
  }
}

/// Makes other entries of what has been left alone for a while.
final class CompactsWhenIdle: FaultyEngine {
  let base: ReferenceEngine
  private let compact: @Sendable ([StorageEntry]) -> [StorageEntry]
  private let last = MutexProtected(ContinuousClock.now)
  init(base: ReferenceEngine, compact: @escaping @Sendable ([StorageEntry]) -> [StorageEntry]) {
    (self.base, self.compact) = (base, compact)
  }
  func write(_ data: Data, key: CacheKey) async throws {
    last.withLock { $0 = .now }
    try await base.write(data, key: key)
  }
  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    let isIdle = last.withLock { ContinuousClock.now - $0 > .seconds(3) }
    return isIdle ? compact(entries) : entries
  }
}

/// Hears nothing more when nothing has come over a connection for four seconds.
final class DropsIdleSubscriptions: FaultyEngine {
  let base: ReferenceEngine
  private let last = MutexProtected(ContinuousClock.now)
  init(base: ReferenceEngine) { self.base = base }
  func changes() async throws -> StorageChanges {
    last.withLock { $0 = .now }
    return try await base.changes().mapping { [self] change in
      let isIdle = last.withLock { last in
        if ContinuousClock.now - last > .seconds(4) { return true }
        last = .now
        return false
      }
      return isIdle ? nil : change
    }
  }
}

/// Sends a write again when it had to wait, though it has been done.
final class RepeatsSlowWrites: FaultyEngine {
  let base: ReferenceEngine
  private let bodies = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    bodies.withLock { $0 += 1 }
    defer { bodies.withLock { $0 -= 1 } }
    return try await base.withTransaction(body)
  }
  func write(_ data: Data, key: CacheKey) async throws {
    let hasWaited = bodies.withLock { $0 > 0 }
    while bodies.withLock({ $0 > 0 }) { try await Task.sleep(for: .milliseconds(1)) }
    try await base.write(data, key: key)
    guard hasWaited else { return }
    Task.detached { [base] in
      for _ in 0..<20 { await Task.yield() }
      // The other error would be the engine's, which has been closed.
      try? await base.write(data, key: key)
    }
  }
}

/// Has an import in its queue that was cancelled, and does it with the next one.
final class KeepsCancelledImports: FaultyEngine {
  let base: ReferenceEngine
  private let queue = MutexProtected<[StorageEntry]>([])
  init(base: ReferenceEngine) { self.base = base }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    for entry in entries { try entry.key.validate() }
    if Task.isCancelled {
      queue.withLock { $0 += entries }
      throw CancellationError()
    }
    let all = queue.withLock { queue in
      defer { queue = [] }
      return queue + entries
    }
    try await base.write(all.map { ($0.key, $0.data) })
  }
}

/// Has those that ask the same as one who is being answered wait for that answer.
final class JoinsEarlierReads: FaultyEngine {
  enum Call { case readMany, scan, updatedAt }
  let base: ReferenceEngine
  private let call: Call
  private let flights = MutexProtected<[String: Task<any Sendable, any Error>]>([:])
  init(base: ReferenceEngine, _ call: Call) { (self.base, self.call) = (base, call) }
  private func join<Answer: Sendable>(
    _ call: Call, _ question: String, _ ask: @escaping @Sendable () async throws -> Answer
  ) async throws -> Answer {
    guard call == self.call else { return try await ask() }
    let (flight, isFirst) = flights.withLock { flights in
      if let flight = flights[question] { return (flight, false) }
      let flight = Task<any Sendable, any Error> {
        let answer = try await ask()
        // As long as it takes others to come.
        for _ in 0..<Int.random(in: 5...60) { await Task.yield() }
        return answer
      }
      flights[question] = flight
      return (flight, true)
    }
    defer { if isFirst { flights.withLock { $0[question] = nil } } }
    if let answer = try await flight.value as? Answer { return answer }
    return try await ask()
  }
  func read(keys: [CacheKey]) async throws -> [Data] {
    try await join(.readMany, "\(keys.map(\.value))") { [base] in try await base.read(keys: keys) }
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await join(.scan, "\(range), \(limit ?? -1)") { [base] in try await base.scan(range, limit: limit) }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try await join(.updatedAt, key.value) { [base] in try await base.updatedAt(key: key) }
  }
}

/// Does imports and transactions one after the other, and waits for ever for one that was cancelled before its turn.
final class LosesTurns: FaultyEngine {
  let base: ReferenceEngine
  private let places = Places(1)
  init(base: ReferenceEngine) { self.base = base }
  private func takingTurns<Result>(_ work: () async throws -> Result) async throws -> Result {
    await places.enter()
    for _ in 0..<3 { await Task.yield() }
    try Task.checkCancellation()
    defer { places.leave() }
    return try await work()
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await takingTurns { try await base.write(entries.map { ($0.key, $0.data) }) }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await takingTurns { try await base.withTransaction(body) }
  }
}

/// Drops entries that were not updated for a month, when there have been so many changes.
final class TrimsTheOld: FaultyEngine {
  let base: ReferenceEngine
  private let state = MutexProtected((changes: 0, old: [CacheKey]()))
  init(base: ReferenceEngine) { self.base = base }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.write(entries.map { ($0.key, $0.data) })
    let old = entries.filter { $0.updatedAt.timeIntervalSinceNow < -30 * 86_400 }.map(\.key)
    state.withLock { $0.old += old }
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    let old = state.withLock { state in
      state.changes += 1
      return state.changes % 1_000 == 0 ? state.old : []
    }
    if !old.isEmpty { try await base.remove(keys: old) }
  }
}

/// Counts how often entries are read, and drops those of the fewest when the counts are halved.
final class DropsTheUnread: FaultyEngine {
  let base: ReferenceEngine
  private let state = MutexProtected((reads: 0, counts: [CacheKey: Int]()))
  init(base: ReferenceEngine) { self.base = base }
  func read(key: CacheKey) async throws -> Data? {
    let isDue = state.withLock { state in
      state.reads += 1
      state.counts[key, default: 0] += 1
      return state.reads % 65_536 == 0
    }
    if isDue {
      let unread = try await base.allKeys().filter { key in state.withLock { $0.counts[key] == nil } }
      try await base.remove(keys: unread)
    }
    return try await base.read(key: key)
  }
}

/// Takes the transaction after 4,095 others for one that has been committed.
final class NumbersTransactions: FaultyEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let number = count.withLock { count in
      count += 1
      return count
    }
    return try await withTransaction(lostIf: { number % 4_096 == 0 }, body)
  }
}

/// Splits its table when there are so many entries, and takes what it moves for written.
final class DatesWhatItMoves: FaultyEngine {
  let base: ReferenceEngine
  private let moved = MutexProtected<Date?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    let entries = try await base.readEntries(keys: keys)
    guard try await base.keyCount() > 8_192 else { return entries }
    let date = moved.withLock { moved in
      if let moved { return moved }
      moved = Date()
      return moved ?? Date()
    }
    return entries.map { entry in
      var entry = entry
      entry.updatedAt = max(entry.updatedAt, date)
      return entry
    }
  }
}

/// Has another structure for many entries, into which it takes the later of their two times.
struct MovesOneTime: FaultyEngine {
  let base: ReferenceEngine
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    let entries = try await base.readEntries(keys: keys)
    guard try await base.keyCount() > 2_048 else { return entries }
    return entries.map { entry in
      var entry = entry
      entry.createdAt = entry.updatedAt
      return entry
    }
  }
}

/// Sends what is written in one moment as one message, which may be too large.
final class RefusesMuchAtOnce: FaultyEngine {
  let base: ReferenceEngine
  private let bytes = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    let sum = bytes.withLock { bytes in
      bytes += data.count
      return bytes
    }
    defer { bytes.withLock { $0 -= data.count } }
    if sum > 16 << 20 { throw StorageError(.valueTooLarge, "The message is too large.") }
    for _ in 0..<10 { await Task.yield() }
    try await base.write(data, key: key)
  }
}

/// Has removals of a key wait for one that is under way, and do nothing themselves.
final class JoinsEarlierRemovals: FaultyEngine {
  let base: ReferenceEngine
  private let flights = MutexProtected<[CacheKey: Task<Void, any Error>]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func remove(key: CacheKey) async throws {
    let (flight, isFirst) = flights.withLock { flights in
      if let flight = flights[key] { return (flight, false) }
      let flight = Task {
        try await base.remove(key: key)
        // As long as it takes others to come.
        for _ in 0..<Int.random(in: 5...60) { await Task.yield() }
      }
      flights[key] = flight
      return (flight, true)
    }
    defer { if isFirst { flights.withLock { $0[key] = nil } } }
    try await flight.value
  }
}

/// Begins a new page with each thousandth list of its keys, and loses what was on the one before.
final class ShortensSomeLists: FaultyEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func allKeys() async throws -> [CacheKey] {
    let number = count.withLock { count in
      count += 1
      return count
    }
    return Array(try await base.allKeys().dropLast(number.isMultiple(of: 1_000) ? 1 : 0))
  }
}

/// Loses one import of a thousand.
final class LosesSomeImports: FaultyEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try entries.map(\.key).validate()
    let number = count.withLock { count in
      count += 1
      return count
    }
    if !number.isMultiple(of: 1_000) { try await base.writeEntries(entries) }
  }
}
