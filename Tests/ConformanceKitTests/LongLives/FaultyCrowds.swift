import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that fail when many tasks use them: pools, queues and shared reads.

/// A counting semaphore, first in, first out unless it is a stack.
final class Places: Sendable {
  private struct State {
    var free: Int
    var waiting: [CheckedContinuation<Void, Never>] = []
  }
  private let state: MutexProtected<State>
  /// Whether the last waiter is served first.
  private let isStack: Bool

  init(_ count: Int, isStack: Bool = false) {
    state = MutexProtected(State(free: count))
    self.isStack = isStack
  }

  func enter() async {
    await withCheckedContinuation { continuation in
      let mayEnter = state.withLock { state in
        if state.free > 0 {
          state.free -= 1
          return true
        }
        state.waiting.append(continuation)
        return false
      }
      if mayEnter { continuation.resume() }
    }
  }

  func leave() {
    let next = state.withLock { state -> CheckedContinuation<Void, Never>? in
      if state.waiting.isEmpty {
        state.free += 1
        return nil
      }
      return isStack ? state.waiting.removeLast() : state.waiting.removeFirst()
    }
    next?.resume()
  }
}

/// Has a pool of connections, and loses the connection of a call that was cancelled while it waited for it.
final class LosesPlaces: InterceptingEngine {
  let base: ReferenceEngine
  private let places: Places
  init(base: ReferenceEngine, count: Int) { (self.base, places) = (base, Places(count)) }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    await places.enter()
    await Task.yield()
    try Task.checkCancellation()
    defer { places.leave() }
    return try await work()
  }
}

/// Uses one connection for a call, and takes another one during the call.
final class TakesTwoPlaces: InterceptingEngine {
  let base: ReferenceEngine
  private let places = Places(128)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    await places.enter()
    defer { places.leave() }
    for _ in 0..<3 { await Task.yield() }
    await places.enter()
    defer { places.leave() }
    return try await work()
  }
}

/// Refuses calls if this many are in progress.
final class RefusesBeyond: InterceptingEngine {
  let base: ReferenceEngine
  private let limit: Int
  private let count = MutexProtected(0)
  init(base: ReferenceEngine, limit: Int) { (self.base, self.limit) = (base, limit) }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let waiting = count.withLock { count in
      count += 1
      return count
    }
    defer { count.withLock { $0 -= 1 } }
    if waiting > limit { throw StorageError(.io, "Too many connections.") }
    for _ in 0..<3 { await Task.yield() }
    return try await work()
  }
}

/// Has fewer connections for some calls than for others, and refuses calls if these are in use.
final class HasFewPlaces: FaultyEngine {
  enum Call { case transactions, scans }
  let base: ReferenceEngine
  private let call: Call
  private let limit: Int
  private let count = MutexProtected(0)
  init(base: ReferenceEngine, for call: Call, limit: Int) {
    (self.base, self.call, self.limit) = (base, call, limit)
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await holdingPlace(for: .scans) { [base] in try await base.scan(range, limit: limit) }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await holdingPlace(for: .transactions) { [base] in try await base.withTransaction(body) }
  }
  private func holdingPlace<Result: Sendable>(
    for call: Call, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    guard call == self.call else { return try await work() }
    let taken = count.withLock { count in
      count += 1
      return count
    }
    defer { count.withLock { $0 -= 1 } }
    if taken > limit { throw StorageError(.io, "All places are taken.") }
    for _ in 0..<5 { await Task.yield() }
    return try await work()
  }
}

/// Refuses reads of a key that more than 80 tasks read at the same time.
final class ThrottlesHotKeys: FaultyEngine {
  let base: ReferenceEngine
  private let readers = MutexProtected<[CacheKey: Int]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func read(key: CacheKey) async throws -> Data? {
    let count = readers.withLock { readers in
      readers[key, default: 0] += 1
      return readers[key] ?? 0
    }
    defer { readers.withLock { $0[key, default: 1] -= 1 } }
    if count > 80 { throw StorageError(.io, "Slow down.") }
    for _ in 0..<5 { await Task.yield() }
    return try await base.read(key: key)
  }
}

/// The first of several concurrent readers of a key reads for all of them, in its own task.
final class SharesReads: FaultyEngine {
  let base: ReferenceEngine
  /// Whether late joiners get the value from when the first one began.
  private let isStale: Bool
  private let flights = MutexProtected<[CacheKey: [CheckedContinuation<Data?, any Error>]]>([:])
  init(base: ReferenceEngine, isStale: Bool) { (self.base, self.isStale) = (base, isStale) }
  func read(key: CacheKey) async throws -> Data? {
    let isFirst = flights.withLock { flights in
      defer { if flights[key] == nil { flights[key] = [] } }
      return flights[key] == nil
    }
    guard isFirst else {
      return try await withCheckedThrowingContinuation { continuation in
        let isLate = flights.withLock { flights in
          flights[key]?.append(continuation)
          return flights[key] == nil
        }
        if isLate { continuation.resume(returning: try? base.everything().first { $0.key == key }?.data) }
      }
    }
    let early = try await base.read(key: key)
    // Long enough for others to join.
    for _ in 0..<Int.random(in: 5...60) { await Task.yield() }
    let isCancelled = Task.isCancelled
    let value = isStale ? early : try await base.read(key: key)
    let others = flights.withLock { $0.removeValue(forKey: key) } ?? []
    for other in others {
      if isCancelled, !isStale {
        other.resume(throwing: CancellationError())
      } else {
        other.resume(returning: value)
      }
    }
    if isCancelled { throw CancellationError() }
    return value
  }
}

/// The first of several concurrent readers of everything reads for all of them, in its own task.
final class SharesReadsOfEverything: FaultyEngine {
  private typealias Waiting = CheckedContinuation<[(key: CacheKey, data: Data)], any Error>
  let base: ReferenceEngine
  /// The readers that wait for the first one; nil if there is none.
  private let waiting = MutexProtected<[Waiting]?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    let isFirst = waiting.withLock { waiting in
      defer { waiting = waiting ?? [] }
      return waiting == nil
    }
    guard isFirst else {
      return try await withCheckedThrowingContinuation { continuation in
        let isLate = waiting.withLock { waiting in
          waiting?.append(continuation)
          return waiting == nil
        }
        if isLate { continuation.resume(with: Result { try base.everything() }) }
      }
    }
    // Long enough for others to join.
    for _ in 0..<Int.random(in: 5...60) { await Task.yield() }
    let result: Result<[(key: CacheKey, data: Data)], any Error> = Result {
      try Task.checkCancellation()
      return try base.everything()
    }
    let others = waiting.withLock { $0.take() } ?? []
    for other in others { other.resume(with: result) }
    return try result.get()
  }
}

/// The first of several concurrent writers writes for all of them, in one batch.
final class CommitsInGroups: FaultyEngine {
  enum Fault { case failsAll, acknowledgesAll, cancelsAll }
  let base: ReferenceEngine
  private let fault: Fault
  private let writes = GroupedCalls<[StorageOperation], Void>()
  init(base: ReferenceEngine, _ fault: Fault) { (self.base, self.fault) = (base, fault) }

  func write(_ data: Data, key: CacheKey) async throws {
    try await writes.call([.write(data, key: key)]) { [base, fault] group in
      switch fault {
      case .failsAll:
        let result = await Task { try await base.apply(group.flatMap { $0 }) }.result
        return group.map { _ in result }
      case .cancelsAll:
        // The task of the first one may be cancelled.
        let result = await Self.result { try await base.apply(group.flatMap { $0 }) }
        return group.map { _ in result }
      case .acknowledgesAll:
        // Requests after the first failing one are not written, but get no error.
        var results: [Result<Void, any Error>] = []
        var hasFailed = false
        for operations in group {
          let result = hasFailed ? .success(()) : await Self.result { try await base.apply(operations) }
          if case .failure = result { hasFailed = true }
          results.append(result)
        }
        return results
      }
    }
  }

  private static func result(_ work: () async throws -> Void) async -> Result<Void, any Error> {
    do {
      try await work()
      return .success(())
    } catch {
      return .failure(error)
    }
  }
}

/// Connections stay cancelled after a cancelled call.
final class KeepsCancellation: InterceptingEngine {
  enum Fault { case forTheNext, forGood }
  let base: ReferenceEngine
  private let fault: Fault
  private let isCancelled = MutexProtected(false)
  init(base: ReferenceEngine, _ fault: Fault) { (self.base, self.fault) = (base, fault) }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let wasCancelled = isCancelled.withLock { isCancelled in
      defer { if fault == .forTheNext { isCancelled = false } }
      return isCancelled
    }
    if wasCancelled {
      if fault == .forTheNext { throw CancellationError() }
      throw StorageError(.io, "The connection is broken.")
    }
    for _ in 0..<3 { await Task.yield() }
    if Task.isCancelled {
      isCancelled.withLock { $0 = true }
      throw CancellationError()
    }
    return try await work()
  }
}
