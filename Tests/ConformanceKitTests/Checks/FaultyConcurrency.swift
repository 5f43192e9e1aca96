import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore

// Engines that are right for one task and wrong for many, or wait where nobody may.

extension FaultyEngineCase {
  static let ofConcurrency: [FaultyEngineCase] = [
    .init(.c1, "loses concurrent writes", claiming: []) { _ in LosesConcurrentWrites() },
    .init(.c1, "reads what its cache had", claiming: []) { ReadsItsCache(base: $0) },
    .init(.c1, "loses counts", claiming: []) { LosesCounts(base: $0) },
    .init(.c1, "mixes two writes", claiming: []) { MixesTwoWrites(base: $0) },
    .init(.c1, "acknowledges early under load", claiming: []) { AcknowledgesEarly(base: $0) },
    .init(.c1, "comes to a standstill under 64 tasks", stallTimeout: .seconds(5)) {
      ComesToAStandstill(base: $0)
    },
    .init(.c1, "loses track of keys under load", claiming: []) { LosesTrackOfKeys(base: $0) },

    .init(persistent: .c2, "shares nothing between two engines", fault: .sharesNothing),
    .init(persistent: .c2, "knows places by their names", fault: .knowsPathsByName),
    .init(
      persistent: .c3, "does not say that it works in several processes",
      claiming: ReferenceEngine.promises.union(.multiProcess)
    ) { base, _ in KeepsQuiet(base: base, silence: .multiProcess) },

    .init(.c4, "throws after the work") { ThrowsAfterTheWork(base: $0) },
    .init(.c4, "throws after any work") { ThrowsAfterAnyWork(base: $0) },
    .init(.c4, "stops half way") { StopsHalfWay(base: $0) },
    .init(.c4, "gives up reading") { GivesUpReading(base: $0) },
    .init(.c4, "returns the pages that it had read") { ReturnsFirstPages(base: $0) },
    // The library underneath calls it an interruption.
    .init(.c4, "calls a cancellation an input/output error") { CallsCancellationIO(base: $0) },
    .init(.c4, "does not recover from a cancellation") { DoesNotRecover(base: $0) },
    .init(.c4, "closes half when it is cancelled") { ClosesHalf(base: $0) },
  ]

  /// One for each check of rule C5. They hold up everything else in their process.
  static let ofCooperation: [String: @Sendable (ReferenceEngine) -> any StorageEngine] = [
    "cooperation.waits-elsewhere": { SleepsInAnActor(base: $0) },
    "cooperation.readAllData-gives-way": { KeepsItsThread(base: $0, method: .readAllData) },
    "cooperation.readAllDataAndKeys-gives-way": { KeepsItsThread(base: $0, method: .readAllDataAndKeys) },
    "cooperation.readAllEntries-gives-way": { KeepsItsThread(base: $0, method: .readAllEntries) },
    "cooperation.scan-gives-way": { KeepsItsThread(base: $0, method: .scan) },
    "cooperation.while-writing": { BlocksTheCaller(base: $0) },
    "cooperation.while-removing": { BlocksRemovals(base: $0) },
    "cooperation.while-writing-batches": { BlocksBatches(base: $0) },
    "cooperation.while-reading": { BlocksReaders(base: $0) },
  ]
}

/// Reads everything, changes it, and writes everything, with time in between for others to do the same.
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

/// Puts what it has read into its cache, whatever has been written meanwhile.
final class ReadsItsCache: FaultyEngine {
  let base: ReferenceEngine
  private let cache = MutexProtected<[CacheKey: Data]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func read(key: CacheKey) async throws -> Data? {
    if let value = cache.withLock({ $0[key] }) {
      // Else who closes it would not notice.
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

/// Writes a value in two parts, the second behind whatever is there.
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

/// Does what it cannot do at once some time later.
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

/// Has 60 connections, and waits for ever for one more.
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

/// Takes its list of keys out, adds to it and puts it back.
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

/// Reports less than the suite claims.
struct KeepsQuiet: FaultyEngine {
  let base: ReferenceEngine
  var silence: EngineCapabilities
  var capabilities: EngineCapabilities { base.capabilities.subtracting(silence) }
}

/// Reports more than the suite claims.
struct ReportsMore: FaultyEngine {
  let base: ReferenceEngine
  var surplus: EngineCapabilities
  var capabilities: EngineCapabilities { base.capabilities.union(surplus) }
}

/// Notices that it was cancelled when the work is done.
struct ThrowsAfterTheWork: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    try await Task { [base] in try await base.write(data, key: key) }.value
    try Task.checkCancellation()
  }
}

/// Asks whether it was cancelled when it has done the work, whatever that was.
struct ThrowsAfterAnyWork: InterceptingEngine {
  let base: ReferenceEngine
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    guard isChange else { return try await work() }
    let result = try await Task { try await work() }.value
    try Task.checkCancellation()
    return result
  }
}

/// Stops in the middle of a batch when it is cancelled.
struct StopsHalfWay: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    if !Task.isCancelled { return try await base.remove(keys: keys) }
    try await Task { [base] in try await base.remove(keys: Array(keys.prefix(keys.count / 2))) }.value
    throw CancellationError()
  }
}

/// Gives nothing to a reader that was cancelled.
struct GivesUpReading: FaultyEngine {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    Task.isCancelled ? [] : try await base.readAllDataAndKeys()
  }
}

struct ReturnsFirstPages: FaultyEngine {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    var (range, found): (KeyRange, [(key: CacheKey, data: Data)]) = (.all, [])
    while true {
      let page = try await base.scan(range, limit: 20)
      found += page
      guard page.count == 20, !Task.isCancelled, let last = page.last else { return found }
      range.after = last.key
      await Task.yield()
    }
  }
}

struct CallsCancellationIO: InterceptingEngine {
  let base: ReferenceEngine
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    do {
      return try await work()
    } catch is CancellationError {
      throw StorageError(.io, "The operation was interrupted.")
    }
  }
}

/// Leaves its transaction open when it is cancelled.
final class DoesNotRecover: InterceptingEngine {
  let base: ReferenceEngine
  private let cancellations = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    if cancellations.withLock({ $0 }) > 3 {
      throw StorageError(.io, "A transaction cannot be begun within a transaction.")
    }
    do {
      return try await work()
    } catch let error as CancellationError {
      cancellations.withLock { $0 += 1 }
      throw error
    }
  }
}

final class ClosesHalf: FaultyEngine {
  let base: ReferenceEngine
  private let isHalfClosed = MutexProtected(false)
  init(base: ReferenceEngine) { self.base = base }
  func close() async throws {
    if isHalfClosed.withLock({ $0 }) { throw StorageError(.io, "The connection has been closed.") }
    if Task.isCancelled {
      isHalfClosed.withLock { $0 = true }
      throw CancellationError()
    }
    try await base.close()
  }
}

/// Waits on one thread at a time.
actor SleepsInAnActor: StorageEngine {
  private let base: ReferenceEngine
  nonisolated let capabilities: EngineCapabilities = []
  init(base: ReferenceEngine) { self.base = base }
  private func wait() { usleep(5_000) }
  func write(_ data: Data, key: CacheKey) async throws {
    wait()
    try await base.write(data, key: key)
  }
  func read(key: CacheKey) async throws -> Data? {
    wait()
    return try await base.read(key: key)
  }
  func remove(key: CacheKey) async throws {
    wait()
    try await base.remove(key: key)
  }
  func allKeys() async throws -> [CacheKey] { try await base.allKeys() }
  func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key) }
  func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }
}

/// Reads everything in one go, however much it is.
struct KeepsItsThread: FaultyEngine {
  enum Method: Sendable { case readAllData, readAllDataAndKeys, readAllEntries, scan }
  let base: ReferenceEngine
  let method: Method
  func readAllData() async throws -> [Data] {
    if method == .readAllData { return try base.everything().map(\.data) }
    return try await base.readAllData()
  }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    if method == .readAllDataAndKeys { return try base.everything() }
    return try await base.readAllDataAndKeys()
  }
  func readAllEntries() async throws -> [StorageEntry] {
    if method == .readAllEntries { return try base.entries() }
    return try await base.readAllEntries()
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    if method == .scan { return try base.everything().sorted { $0.key < $1.key } }
    return try await base.scan(range, limit: limit)
  }
}

/// Longer than a disk would: most of what waits on a busy machine waits for a processor, which is no engine's fault.
private func waitOnThisThread() { usleep(30_000) }

/// Waits on the thread of the caller.
struct BlocksTheCaller: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    waitOnThisThread()
  }
}

struct BlocksRemovals: FaultyEngine {
  let base: ReferenceEngine
  func remove(key: CacheKey) async throws {
    try await base.remove(key: key)
    waitOnThisThread()
  }
}

struct BlocksBatches: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    waitOnThisThread()
  }
}

struct BlocksReaders: FaultyEngine {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    waitOnThisThread()
    return try await base.readAllDataAndKeys()
  }
}

/// Never answers one question.
struct Hangs: FaultyEngine {
  let base: ReferenceEngine
  func keyCount() async throws -> Int {
    await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
    return 0
  }
}
