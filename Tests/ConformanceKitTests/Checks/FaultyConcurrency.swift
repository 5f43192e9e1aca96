import FaultyEngineWorker
@testable import ConformanceKit
import Foundation
import StockroomCore

// Engines that work for one task, but not for many.

extension FaultyEngineCase {
  static let ofConcurrency: [FaultyEngineCase] = [
    .init(.c1, "answers requests for as many keys with one answer") { SharesRequests(base: $0, .ofOneSize) },
    .init(.c1, "answers scans with the same limit with one answer") { SharesRequests(base: $0, .scans) },
    .init(.c1, "answers requests for the same keys in one order") {
      SharesRequests(base: $0, .ofTheSameKeys)
    },
    .init(.c1, "answers scans of the same range with one limit") {
      SharesRequests(base: $0, .scansOfOneRange)
    },
    .init(.c1, "loses concurrent writes", claiming: []) { _ in LosesConcurrentWrites() },
    .init(.c1, "reads what its cache had", claiming: []) { ReadsItsCache(base: $0) },
    .init(.c1, "loses counts", claiming: []) { LosesCounts(base: $0) },
    .init(.c1, "mixes two writes", claiming: []) { MixesTwoWrites(base: $0) },
    .init(.c1, "acknowledges early under load", claiming: []) { AcknowledgesEarly(base: $0) },
    .init(.c1, "comes to a standstill under 64 tasks", stallTimeout: .seconds(5)) {
      ComesToAStandstill(base: $0)
    },
    .init(.c1, "loses track of keys under load", claiming: []) { LosesTrackOfKeys(base: $0) },

    .init(persistent: .c2, "shares nothing between two engines", fault: .sharesNothing, also: [.w2, .r6]),
    .init(persistent: .c2, "knows places by their names", fault: .knowsPathsByName),
    .init(
      persistent: .c3, "does not say that it works in several processes",
      claiming: ReferenceEngine.promises.union(.multiProcess)
    ) { base, _ in KeepsQuiet(base: base, silence: .multiProcess) },
    .init(.c1, "reads a file where a value was before a compaction") { ReadsWhereItWas(base: $0) },
    .init(.c1, "writes what it verifies") { WritesWhatItVerifies(base: $0) },
    .init(.c1, "writes what it verifies, beside batches") { WritesWhatItVerifies(base: $0, beside: true) },
  ]
}

/// Reads everything, changes it, and writes everything, so that concurrent changes are lost.
final class LosesConcurrentWrites: StorageEngine {
  private let entries = MutexProtected<[CacheKey: MinimalEntry]>([:])

  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    var copy = entries.withLock { $0 }
    await Task.yield()
    let now = Date()
    copy[key] = MinimalEntry(data: data, createdAt: copy[key]?.createdAt ?? now, updatedAt: now)
    entries.withLock { [copy] in $0 = copy }
  }
  func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return entries.withLock { $0[key]?.data }
  }
  func remove(key: CacheKey) async throws {
    try key.validate()
    entries.withLock { $0[key] = nil }
  }
  func allKeys() async throws -> [CacheKey] { entries.withLock { Array($0.keys) } }
  func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return entries.withLock { $0[key]?.createdAt }
  }
  func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return entries.withLock { $0[key]?.updatedAt }
  }
}

/// Caches the result of a read even if the entry has been written meanwhile.
final class ReadsItsCache: FaultyEngine {
  let base: ReferenceEngine
  private let cache = MutexProtected<[CacheKey: Data]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func read(key: CacheKey) async throws -> Data? {
    if let value = cache.withLock({ $0[key] }) {
      // Otherwise a cached read would succeed after close().
      _ = try await base.keyExists(key)
      return value
    }
    let value = try await base.read(key: key)
    await Task.yield()
    if let value { cache.withLock { $0[key] = value } }
    return value
  }
  private func forget(_ keys: [CacheKey]) { cache.withLock { cache in for key in keys { cache[key] = nil } } }
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    forget([key])
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    forget(dataAndKeys.map(\.key))
  }
  func remove(key: CacheKey) async throws {
    try await base.remove(key: key)
    forget([key])
  }
  func remove(keys: [CacheKey]) async throws {
    try await base.remove(keys: keys)
    forget(keys)
  }
  func removeAllData() async throws {
    try await base.removeAllData()
    cache.withLock { $0 = [:] }
  }
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    cache.withLock { $0 = [:] }
  }
}

/// Reads its counter, adds to it and writes it back.
final class LosesCounts: InterceptingEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    guard isChange else { return try await work() }
    let (counted, before) = (count.withLock { $0 }, try await base.keyCount())
    let result = try await work()
    let after = try await base.keyCount()
    await Task.yield()
    count.withLock { $0 = counted + after - before }
    return result
  }
  func keyCount() async throws -> Int {
    _ = try await base.keyCount()
    return count.withLock { $0 }
  }
}

/// Writes a value in two parts. It appends the second one to the stored value, whatever that is.
struct MixesTwoWrites: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    guard (500..<2_000).contains(data.count) else { return try await base.write(data, key: key) }
    try await Task { [base] in
      try await base.write(data.prefix(data.count / 2), key: key)
      for _ in 0..<3 { await Task.yield() }
      let first = try await base.read(key: key) ?? Data()
      try await base.write(first + data.dropFirst(data.count / 2), key: key)
    }.value
  }
}

/// Acknowledges changes that it cannot perform at once, and performs them later.
final class AcknowledgesEarly: FaultyEngine {
  let base: ReferenceEngine
  private let underWay = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    let isBusy = underWay.withLock { count in
      count += 1
      return count > 4
    }
    defer { underWay.withLock { $0 -= 1 } }
    guard isBusy else {
      try await base.write(data, key: key)
      return await Task.yield()
    }
    Task { [base] in
      for _ in 0..<50 { await Task.yield() }
      try? await base.write(data, key: key)
    }
    await Task.yield()
  }
}

/// Has 60 connections, and waits forever for one more.
final class ComesToAStandstill: InterceptingEngine {
  let base: ReferenceEngine
  private let underWay = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let count = underWay.withLock { count in
      count += 1
      return count
    }
    defer { underWay.withLock { $0 -= 1 } }
    if count > 60 { await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in } }
    await Task.yield()
    return try await work()
  }
}

/// Loses changes of its list of keys if keys are removed concurrently.
final class LosesTrackOfKeys: FaultyEngine {
  let base: ReferenceEngine
  private let lost = MutexProtected<Set<CacheKey>>([])
  private let underWay = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func remove(key: CacheKey) async throws {
    let count = underWay.withLock { count in
      count += 1
      return count
    }
    await Task.yield()
    try await base.remove(key: key)
    if count > 1 { lost.withLock { _ = $0.insert(key) } }
    underWay.withLock { $0 -= 1 }
  }
  func keyExists(_ key: CacheKey) async throws -> Bool {
    let exists = try await base.keyExists(key)
    return lost.withLock { $0.contains(key) } ? !exists : exists
  }
}

/// Reports fewer capabilities than the suite claims.
struct KeepsQuiet: FaultyEngine {
  let base: ReferenceEngine
  var silence: EngineCapabilities
  var capabilities: EngineCapabilities { base.capabilities.subtracting(silence) }
}

/// Reports more capabilities than the suite claims.
struct ReportsMore: FaultyEngine {
  let base: ReferenceEngine
  var surplus: EngineCapabilities
  var capabilities: EngineCapabilities { base.capabilities.union(surplus) }
}

/// Rewrites each large value after verifying it, for instance with a new checksum. With `beside`, most changes wait for
/// that, but not batches of writes.
final class WritesWhatItVerifies: FaultyEngine {
  let base: ReferenceEngine
  private let turns: AsyncSemaphore?
  init(base: ReferenceEngine, beside isBesideBatchesOnly: Bool = false) {
    self.base = base
    turns = isBesideBatchesOnly ? AsyncSemaphore(width: 1) : nil
  }
  private func inTurn<Result: Sendable>(
    _ work: @Sendable () async throws -> Result
  ) async throws -> Result {
    await turns?.enter()
    defer { turns?.leave() }
    return try await work()
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try await inTurn { [base] in try await base.write(data, key: key) }
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await inTurn { [base] in try await base.writeEntries(entries) }
  }
  func apply(_ operations: [StorageOperation]) async throws {
    try await inTurn { [base] in try await base.apply(operations) }
  }
  func remove(key: CacheKey) async throws {
    try await inTurn { [base] in try await base.remove(key: key) }
  }
  func remove(keys: [CacheKey]) async throws {
    try await inTurn { [base] in try await base.remove(keys: keys) }
  }
  func verify() async throws {
    try await inTurn { [base] in
      for entry in try await base.readAllEntries() where entry.data.count > 1_000 {
        await Task.yield()
        try await base.write(entry.data, key: entry.key)
      }
    }
  }
}

/// Shares one request among concurrent calls for the same number of keys, the same keys, the same limit or the same
/// range.
final class SharesRequests: FaultyEngine {
  enum Requests { case ofOneSize, ofTheSameKeys, scans, scansOfOneRange }
  typealias Entries = [(key: CacheKey, data: Data)]
  let base: ReferenceEngine
  private let requests: Requests
  private let underWay = MutexProtected<[String: Task<Entries, any Error>]>([:])
  init(base: ReferenceEngine, _ requests: Requests) { (self.base, self.requests) = (base, requests) }

  private func shared(
    _ name: String, _ read: @escaping @Sendable () async throws -> Entries
  ) async throws -> Entries {
    let task = underWay.withLock { underWay in
      if let task = underWay[name] { return task }
      let task = Task {
        for _ in 0..<4 { await Task.yield() }
        return try await read()
      }
      underWay[name] = task
      return task
    }
    defer { underWay.withLock { $0[name] = nil } }
    return try await task.value
  }
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    guard requests == .ofOneSize || requests == .ofTheSameKeys else {
      return try await base.readDataAndKeys(keys: keys)
    }
    try keys.validate()
    let name =
      requests == .ofOneSize ? "\(keys.count)" : Set(keys).map(\.value).sorted().joined(separator: " ")
    return try await shared(name) { [base] in try await base.readDataAndKeys(keys: keys) }
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    guard requests == .scans || requests == .scansOfOneRange, let limit else {
      return try await base.scan(range, limit: limit)
    }
    try range.validate()
    let bounds = [range.prefix, range.after?.value, range.upTo?.value]
    let name = requests == .scans ? "\(limit)" : "\(bounds)"
    return try await shared(name) { [base] in try await base.scan(range, limit: limit) }
  }
}
