import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that fail after very many repetitions of a call, or after a long pause.

/// Gives entries the generation in which they were written. There are 256 generations.
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

/// Never frees the resources of calls of one kind that threw.
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

/// After ten seconds without a call, the next call fails because the server has closed the connection.
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

/// Returns altered entries after a pause, as after a faulty compaction.
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

/// Receives no more changes after a connection was idle for four seconds.
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

/// Repeats a write that had to wait, although it has been done.
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
      // Only fails if the engine has been closed, which does not matter here.
      try? await base.write(data, key: key)
    }
  }
}

/// Keeps a cancelled import in its queue, and performs it with the next one.
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

/// Calls with the same request wait for one in progress and return its result.
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
        // Long enough for others to join.
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

/// Performs imports and transactions one after the other, and waits forever for one that was cancelled while queued.
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

/// After each hundred writes, drops imported entries that were a month old.
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
      return state.changes % 100 == 0 ? state.old : []
    }
    if !old.isEmpty { try await base.remove(keys: old) }
  }
}

/// Keeps new keys of single writes in a table of their own, and loses the one with which it is full and moved.
final class MovesSingleWrites: FaultyEngine {
  let base: ReferenceEngine
  private let limit: Int
  private let count = MutexProtected(0)
  init(base: ReferenceEngine, count limit: Int) { (self.base, self.limit) = (base, limit) }
  func write(_ data: Data, key: CacheKey) async throws {
    let isNew = try await base.read(key: key) == nil
    let isFull = count.withLock { count in
      if isNew { count += 1 }
      return isNew && count % limit == 0
    }
    if !isFull { try await base.write(data, key: key) }
  }
}

/// After each 256 reads, drops the entries that were never read.
final class DropsTheUnread: FaultyEngine {
  let base: ReferenceEngine
  private let state = MutexProtected((reads: 0, counts: [CacheKey: Int]()))
  init(base: ReferenceEngine) { self.base = base }
  func read(key: CacheKey) async throws -> Data? {
    let isDue = state.withLock { state in
      state.reads += 1
      state.counts[key, default: 0] += 1
      return state.reads % 256 == 0
    }
    if isDue {
      let unread = try await base.allKeys().filter { key in state.withLock { $0.counts[key] == nil } }
      try await base.remove(keys: unread)
    }
    return try await base.read(key: key)
  }
}

/// Sends concurrent writes as one message, which may be too large.
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

/// Removals of a key wait for one in progress, and do nothing themselves.
final class JoinsEarlierRemovals: FaultyEngine {
  let base: ReferenceEngine
  private let flights = MutexProtected<[CacheKey: Task<Void, any Error>]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func remove(key: CacheKey) async throws {
    let (flight, isFirst) = flights.withLock { flights in
      if let flight = flights[key] { return (flight, false) }
      let flight = Task {
        try await base.remove(key: key)
        // Long enough for others to join.
        for _ in 0..<Int.random(in: 5...60) { await Task.yield() }
      }
      flights[key] = flight
      return (flight, true)
    }
    defer { if isFirst { flights.withLock { $0[key] = nil } } }
    try await flight.value
  }
}
