import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that handle one call among many others wrongly.

/// The first of several readers reads the keys of all of them, which fails for all if one key is invalid.
final class AsksInGroups: FaultyEngine {
  let base: ReferenceEngine
  private let reads = GroupedCalls<CacheKey, Data?>()
  init(base: ReferenceEngine) { self.base = base }

  func read(key: CacheKey) async throws -> Data? {
    try await reads.call(key) { [base] keys in
      let found = Result {
        try keys.validate()
        return Dictionary(uniqueKeysWithValues: try base.everything().map { ($0.key, $0.data) })
      }
      return keys.map { key in found.map { $0[key] } }
    }
  }
}

/// The first of several tasks removes the keys of all of them, which fails for all if one key is invalid.
final class RemovesInGroups: FaultyEngine {
  let base: ReferenceEngine
  private let removals = GroupedCalls<CacheKey, Void>()
  init(base: ReferenceEngine) { self.base = base }

  func remove(key: CacheKey) async throws {
    try await removals.call(key) { [base] keys in
      let result = await Task { try await base.remove(keys: keys) }.result
      return keys.map { _ in result }
    }
  }
}

/// Loses one removal of two hundred, but only while another one is in progress.
final class LosesSomeRemovals: FaultyEngine {
  private struct Counts {
    var running = 0
    var made = 0
  }
  let base: ReferenceEngine
  private let counts = MutexProtected(Counts())
  init(base: ReferenceEngine) { self.base = base }
  func remove(key: CacheKey) async throws {
    try key.validate()
    let isLost = counts.withLock { counts in
      counts.running += 1
      counts.made += 1
      guard counts.running > 1, counts.made >= 200 else { return false }
      counts.made = 0
      return true
    }
    defer { counts.withLock { $0.running -= 1 } }
    for _ in 0..<2 { await Task.yield() }
    if !isLost { try await base.remove(key: key) }
  }
}

/// Has eight connections, and throws its own error for a call that is cancelled while it waits for one.
final class HasItsOwnCancellation: InterceptingEngine {
  let base: ReferenceEngine
  private let places = Places(8)
  private let count = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let hasToWait = count.withLock { count in
      count += 1
      return count > 8
    }
    defer { count.withLock { $0 -= 1 } }
    await places.enter()
    defer { places.leave() }
    await Task.yield()
    if hasToWait, Task.isCancelled { throw StorageError(.io, "The wait for a connection was given up.") }
    return try await work()
  }
}

/// Keeps the entries of a refused batch in its queue, and writes them with the next entry.
final class KeepsRefusedBatches: FaultyEngine {
  let base: ReferenceEngine
  private let queue = MutexProtected<[StorageOperation]>([])
  init(base: ReferenceEngine) { self.base = base }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    do {
      try await base.write(dataAndKeys)
    } catch {
      let valid = dataAndKeys.filter { (1...511).contains($0.key.value.utf8.count) }
      let operations = valid.map { StorageOperation.write($0.data, key: $0.key) }
      queue.withLock { $0 += operations }
      throw error
    }
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    let queued = queue.withLock { queue in
      defer { queue = [] }
      return queue
    }
    try await base.apply(queued + [.write(data, key: key)])
  }
}

/// The first of several tasks applies the batches of all of them, which fails for all if one key is invalid.
final class AppliesInGroups: FaultyEngine {
  let base: ReferenceEngine
  private let batches = GroupedCalls<[StorageOperation], Void>()
  init(base: ReferenceEngine) { self.base = base }
  func apply(_ operations: [StorageOperation]) async throws {
    try await batches.call(operations) { [base] group in
      let result = await Task { try await base.apply(group.flatMap { $0 }) }.result
      return group.map { _ in result }
    }
  }
}

/// Combines the waiting writes of a key: it stores the value of the last one, unless that is cancelled.
final class CombinesWritesOfAKey: FaultyEngine {
  private struct Waiting {
    var data: Data
    /// The number of the last call.
    var last = 0
    var isCancelled = false
  }
  let base: ReferenceEngine
  private let waiting = MutexProtected<[CacheKey: Waiting]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    let (number, isFirst) = waiting.withLock { waiting in
      let before = waiting[key]
      let number = (before?.last ?? 0) + 1
      waiting[key] = Waiting(data: data, last: number)
      return (number, before == nil)
    }
    for _ in 0..<60 { await Task.yield() }
    if Task.isCancelled {
      let isLast = waiting.withLock { waiting in
        guard waiting[key]?.last == number else { return false }
        waiting[key]?.isCancelled = true
        return true
      }
      if isLast, !isFirst { throw CancellationError() }
    }
    // The others return when the first one has written.
    guard isFirst else {
      while waiting.withLock({ $0[key] != nil }) { await Task.yield() }
      return
    }
    for _ in 0..<60 { await Task.yield() }
    let last = waiting.withLock { waiting in waiting.removeValue(forKey: key) }
    if let last, !last.isCancelled { try await base.write(last.data, key: key) }
  }
}

/// Calls of `readAllEntries()` that come while one is in progress share its answer.
final class JoinsEarlierLists: FaultyEngine {
  let base: ReferenceEngine
  private let shared = MutexProtected<(number: Int, task: Task<[StorageEntry], any Error>?)>((0, nil))
  init(base: ReferenceEngine) { self.base = base }

  func readAllEntries() async throws -> [StorageEntry] {
    let task = shared.withLock { [self] shared in
      if let task = shared.task { return task }
      shared.number += 1
      let number = shared.number
      let task = Task {
        defer { self.shared.withLock { if $0.number == number { $0.task = nil } } }
        return try await base.readAllEntries()
      }
      shared.task = task
      return task
    }
    return try await task.value
  }
}
