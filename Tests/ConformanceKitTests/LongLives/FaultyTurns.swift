import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines in which calls starve, changes are not atomic, or effects are delayed or repeated.

/// Prefers readers as long as others read, or writers as long as others write.
final class PrefersSome: InterceptingEngine {
  enum Preferred { case readers, writers }
  private struct State {
    var readers = 0
    var isWriting = false
    var waitingReaders: [CheckedContinuation<Void, Never>] = []
    var waitingWriters: [CheckedContinuation<Void, Never>] = []
  }
  let base: ReferenceEngine
  private let preferred: Preferred
  private let state = MutexProtected(State())
  init(base: ReferenceEngine, _ preferred: Preferred) { (self.base, self.preferred) = (base, preferred) }

  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    await enter(isChange)
    defer { leave(isChange) }
    // Long enough for others to join, and at random, to avoid lockstep.
    for _ in 0..<Int.random(in: 4...20) { await Task.yield() }
    return try await work()
  }

  private func enter(_ isChange: Bool) async {
    await withCheckedContinuation { continuation in
      let mayEnter = state.withLock { state in
        if isChange {
          if state.isWriting || state.readers > 0 {
            state.waitingWriters.append(continuation)
            return false
          }
          state.isWriting = true
        } else {
          if state.isWriting || preferred == .writers && !state.waitingWriters.isEmpty {
            state.waitingReaders.append(continuation)
            return false
          }
          state.readers += 1
        }
        return true
      }
      if mayEnter { continuation.resume() }
    }
  }

  private func leave(_ isChange: Bool) {
    let next = state.withLock { state -> [CheckedContinuation<Void, Never>] in
      if isChange { state.isWriting = false } else { state.readers -= 1 }
      if state.readers > 0 { return [] }
      if preferred == .writers || state.waitingReaders.isEmpty, !state.waitingWriters.isEmpty {
        state.isWriting = true
        return [state.waitingWriters.removeFirst()]
      }
      defer { state.waitingReaders = [] }
      state.readers = state.waitingReaders.count
      return state.waitingReaders
    }
    for continuation in next { continuation.resume() }
  }
}

/// Serves the last waiter first, one at a time.
final class ServesTheLastFirst: InterceptingEngine {
  let base: ReferenceEngine
  private let places = Places(1, isStack: true)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    await places.enter()
    defer { places.leave() }
    for _ in 0..<12 { await Task.yield() }
    return try await work()
  }
}

/// Starts a batch, or a read of everything, when no single write is in progress.
final class WaitsForQuiet: FaultyEngine {
  let base: ReferenceEngine
  private let writers = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    writers.withLock { $0 += 1 }
    defer { writers.withLock { $0 -= 1 } }
    for _ in 0..<Int.random(in: 4...20) { await Task.yield() }
    try await base.write(data, key: key)
  }
  private func waitForQuiet() async { while writers.withLock({ $0 > 0 }) { await Task.yield() } }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    await waitForQuiet()
    try await base.write(dataAndKeys)
  }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    await waitForQuiet()
    return try await base.readAllDataAndKeys()
  }
}

/// Checks whether a key exists before it counts it.
final class CountsAfterALook: FaultyBatchEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func removeAllData() async throws {
    try await base.removeAllData()
    count.withLock { $0 = 0 }
  }
  func keyCount() async throws -> Int { count.withLock { $0 } }
  func apply(_ operations: [StorageOperation]) async throws {
    for operation in operations {
      switch operation {
      case .removeAll: try await removeAllData()
      case .write(let data, let key):
        let isNew = try await base.read(key: key) == nil
        await Task.yield()
        try await base.write(data, key: key)
        if isNew { count.withLock { $0 += 1 } }
      case .remove(let key):
        let isThere = try await base.read(key: key) != nil
        await Task.yield()
        try await base.remove(key: key)
        if isThere { count.withLock { $0 -= 1 } }
      }
    }
  }
}

/// Sets the creation time of a key after checking whether it existed.
final class DatesAfterALook: FaultyEngine {
  let base: ReferenceEngine
  private let created = MutexProtected<[CacheKey: Date]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    let isNew = try await base.read(key: key) == nil
    try await base.write(data, key: key)
    for _ in 0..<4 { await Task.yield() }
    if isNew { created.withLock { $0[key] = Date() } }
  }
  func remove(key: CacheKey) async throws {
    try await base.remove(key: key)
    created.withLock { $0[key] = nil }
  }
  func createdAt(key: CacheKey) async throws -> Date? {
    guard let date = try await base.createdAt(key: key) else { return nil }
    return created.withLock { $0[key] } ?? date
  }
}

/// Repeats a write now and then, although it has been done.
final class RepeatsWrites: FaultyEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    let number = count.withLock { count in
      count += 1
      return count
    }
    guard number.isMultiple(of: 40) else { return }
    Task.detached { [base] in
      for _ in 0..<8 { await Task.yield() }
      // Only fails if the engine has been closed, which does not matter here.
      try? await base.write(data, key: key)
    }
  }
}

/// Repeats a removal of several keys now and then, although it has been done.
final class RepeatsRemovalsOfMany: FaultyEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func remove(keys: [CacheKey]) async throws {
    try await base.remove(keys: keys)
    let number = count.withLock { count in
      count += 1
      return count
    }
    guard number.isMultiple(of: 10) else { return }
    Task.detached { [base] in
      for _ in 0..<8 { await Task.yield() }
      // Only fails if the engine has been closed, which does not matter here.
      try? await base.remove(keys: keys)
    }
  }
}

/// Throws when it is cancelled, but still performs the call later.
final class WorksAfterThrowing: FaultyEngine {
  let base: ReferenceEngine
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    let work = Task.detached { [base] in
      for _ in 0..<10 { await Task.yield() }
      try await base.write(data, key: key)
    }
    for _ in 0..<3 { await Task.yield() }
    try Task.checkCancellation()
    try await work.value
  }
}

/// Loses one write of very many.
final class LosesSomeWrites: FaultyEngine {
  let base: ReferenceEngine
  private let period: Int
  private let count = MutexProtected(0)
  init(base: ReferenceEngine, oneIn period: Int) { (self.base, self.period) = (base, period) }
  func write(_ data: Data, key: CacheKey) async throws {
    let number = count.withLock { count in
      count += 1
      return count
    }
    try key.validate()
    if !number.isMultiple(of: period) { try await base.write(data, key: key) }
  }
}

/// Handles calls in progress wrongly when it is closed: they hang, find nothing, are acknowledged, or throw `io`.
final class ForgetsWhoWaits: InterceptingEngine {
  enum Fault { case neverWakes, returnsNothing, acknowledges, usesWhatIsGone }
  let base: ReferenceEngine
  private let fault: Fault
  private let isClosed = MutexProtected(false)
  init(base: ReferenceEngine, _ fault: Fault) { (self.base, self.fault) = (base, fault) }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    for _ in 0..<4 { await Task.yield() }
    if fault == .neverWakes, isClosed.withLock({ $0 }) {
      // Until its task is cancelled.
      while !Task.isCancelled { try? await Task.sleep(for: .seconds(1)) }
    }
    return try await work()
  }
  func write(_ data: Data, key: CacheKey) async throws {
    for _ in 0..<4 { await Task.yield() }
    if fault == .acknowledges, isClosed.withLock({ $0 }) { return }
    try await call(isChange: true) { [base] in try await base.write(data, key: key) }
  }
  func read(keys: [CacheKey]) async throws -> [Data] {
    for _ in 0..<4 { await Task.yield() }
    if fault == .returnsNothing, isClosed.withLock({ $0 }) { return [] }
    return try await call(isChange: false) { [base] in try await base.read(keys: keys) }
  }
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    for _ in 0..<4 { await Task.yield() }
    if fault == .usesWhatIsGone, isClosed.withLock({ $0 }) {
      throw StorageError(.io, "The library was called with a handle that is none.")
    }
    return try await call(isChange: true) { [base] in try await base.withTransaction(body) }
  }
  func close() async throws {
    isClosed.withLock { $0 = true }
    try await base.close()
  }
}

/// Needs a while for each call, one at a time, and serves the last waiter first.
final class TakesItsTimeAndTheLast: InterceptingEngine {
  let base: ReferenceEngine
  private let places = Places(1, isStack: true)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    await places.enter()
    defer { places.leave() }
    await Task { try? await Task.sleep(for: .microseconds(50)) }.value
    return try await work()
  }
}

/// Verifies its files one after the other, although they may be closed meanwhile.
final class LosesItsFilesWhenClosed: FaultyEngine {
  let base: ReferenceEngine
  private let isClosed = MutexProtected(false)
  init(base: ReferenceEngine) { self.base = base }
  func verify() async throws {
    if isClosed.withLock({ $0 }) { throw StorageError(.closed, "The engine has been closed.") }
    for _ in 0..<12 { await Task.yield() }
    if isClosed.withLock({ $0 }) { throw StorageError(.corrupted, "A file could not be read.") }
    try await base.verify()
  }
  func close() async throws {
    isClosed.withLock { $0 = true }
    try await base.close()
  }
}
