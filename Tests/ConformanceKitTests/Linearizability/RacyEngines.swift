import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import Testing

// Engines that only fail if several tasks use them. Each has one fault.

/// Yields to other tasks, as an engine that waits for a disk does.
private func pause(_ times: Int = 1) async { for _ in 0..<times { await Task.yield() } }

/// Fills a cache after the read, possibly with a value that has been replaced meanwhile.
final class FillsItsCacheLate: InterceptingEngine {
  let base: ReferenceEngine
  private let cache = MutexProtected<[CacheKey: Data]>([:])
  init(base: ReferenceEngine) { self.base = base }

  func read(key: CacheKey) async throws -> Data? {
    if let data = cache.withLock({ $0[key] }) { return data }
    let data = try await base.read(key: key)
    await pause()
    cache.withLock { $0[key] = data }
    return data
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let result = try await work()
    if isChange { cache.withLock { $0 = [:] } }
    return result
  }
}

/// Caches the number of keys in the same way.
final class CountsLate: InterceptingEngine {
  let base: ReferenceEngine
  private let cached = MutexProtected<Int?>(nil)
  init(base: ReferenceEngine) { self.base = base }

  func keyCount() async throws -> Int {
    if let count = cached.withLock({ $0 }) { return count }
    let count = try await base.keyCount()
    await pause(2)
    cached.withLock { $0 = count }
    return count
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let result = try await work()
    if isChange { cached.withLock { $0 = nil } }
    return result
  }
}

/// Stores two entries in a page. A page is read, changed and written back.
struct LosesUpdatesOfAPage: FaultyEngine {
  let base: ReferenceEngine

  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    guard let neighbor = neighbor(of: key), let kept = try await base.read(key: neighbor) else {
      return try await base.write(data, key: key)
    }
    await pause()
    try await base.write([(key, data), (neighbor, kept)])
  }

  private func neighbor(of key: CacheKey) -> CacheKey? {
    guard let byte = key.value.utf8.first, key.value.utf8.count == 1 else { return nil }
    return CacheKey(verbatim: String(UnicodeScalar(byte ^ 1)))
  }
}

/// Every task sees its own writes at once; the others see them a few writes later.
final class ReadsItsOwnWritesOnly: FaultyEngine {
  let base: ReferenceEngine
  private let private_ = MutexProtected<[CacheKey: (task: Int, old: Data?, writes: Int)]>([:])
  private let writes = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }

  private var task: Int { withUnsafeCurrentTask { $0?.hashValue ?? 0 } }

  func write(_ data: Data, key: CacheKey) async throws {
    let old = try await base.read(key: key)
    try await base.write(data, key: key)
    let count = writes.withLock { writes in
      writes += 1
      return writes
    }
    let task = task
    private_.withLock { $0[key] = (task, old, count) }
  }
  func read(key: CacheKey) async throws -> Data? {
    let (task, count) = (task, writes.withLock { $0 })
    if let hidden = private_.withLock({ $0[key] }), hidden.task != task, count < hidden.writes + 3,
      try await base.read(key: key) != nil
    {
      return hidden.old
    }
    return try await base.read(key: key)
  }
}

/// Loses a write while at least three others are in progress.
final class WrongUnderLoad: FaultyEngine {
  let base: ReferenceEngine
  private let load = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }

  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    let isTooMuch = load.withLock { load in
      load += 1
      return load >= 4
    }
    await pause(3)
    if !isTooMuch { try await base.write(data, key: key) }
    load.withLock { $0 -= 1 }
  }
}

/// Acknowledges a write, and performs it a little later.
struct AcknowledgesTooEarly: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    guard data.count < 100 else { return try await base.write(data, key: key) }
    Task { [base] in
      await pause()
      try await base.write(data, key: key)
    }
  }
}

/// Makes the first half of a batch visible before the second.
struct AppliesInTwoSteps: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    try Task.checkCancellation()
    try await Task { [base] in
      let half = operations.count / 2
      try await base.apply(Array(operations.prefix(half)))
      await pause()
      try await base.apply(Array(operations.suffix(from: half)))
    }.value
  }
}

/// Removes many keys one by one.
struct RemovesInParts: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    try Task.checkCancellation()
    try await Task { [base] in
      for key in keys {
        try await base.remove(key: key)
        if keys.count < 100 { await pause() }
      }
    }.value
  }
}

/// Reads everything in two halves.
struct ReadsInTwoHalves: FaultyEngine {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    let keys = try await base.allKeys()
    let half = try await base.readDataAndKeys(keys: Array(keys.prefix(keys.count / 2)))
    await pause()
    return try await half + base.readDataAndKeys(keys: Array(keys.suffix(from: keys.count / 2)))
  }
}

/// Scans a page of two entries at a time.
struct ScansInPages: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    var found: [(key: CacheKey, data: Data)] = []
    var range = range
    while found.count < limit ?? .max {
      let page = try await base.scan(range, limit: min(2, (limit ?? .max) - found.count))
      guard let last = page.last else { break }
      found += page
      range.after = last.key
      if found.count < 20 { await pause() }
    }
    return found
  }
}

/// Checks whether keys exist in an index that is updated late.
final class ExistsInALateIndex: FaultyEngine {
  let base: ReferenceEngine
  private let index = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }

  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    await pause()
    index.withLock { _ = $0.insert(key) }
  }
  func keyExists(_ key: CacheKey) async throws -> Bool {
    let exists = try await base.keyExists(key)
    // A key of one byte only exists once the index has contained it.
    return exists && (index.withLock { $0.contains(key) } || key.value.utf8.count > 1)
  }
}

/// Throws CancellationError from one of a hundred writes.
final class CancelsNowAndThen: FaultyEngine {
  let base: ReferenceEngine
  private let count = MutexProtected(0)

  init(base: ReferenceEngine) { self.base = base }

  func write(_ data: Data, key: CacheKey) async throws {
    let isHit = count.withLock { count in
      count += 1
      return count.isMultiple(of: 100)
    }
    if isHit { throw CancellationError() }
    try await base.write(data, key: key)
  }
}

/// Checks for cancellation of a batch too late, and then writes its first entry.
struct GivesUpABatch: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    guard (2...3).contains(dataAndKeys.count) else { return try await base.write(dataAndKeys) }
    try dataAndKeys.map(\.key).validate()
    try Task.checkCancellation()
    await pause(2)
    if !Task.isCancelled { return try await base.write(dataAndKeys) }
    try await Task { [base] in try await base.write([dataAndKeys[0]]) }.value
    throw CancellationError()
  }
}

/// Reports a removal or a write as cancelled after performing it.
struct RemovesAndSaysNo: FaultyEngine {
  let base: ReferenceEngine
  func remove(key: CacheKey) async throws {
    try Task.checkCancellation()
    try await Task { [base] in try await base.remove(key: key) }.value
    await pause()
    try Task.checkCancellation()
  }
  func write(_ data: Data, key: CacheKey) async throws {
    try Task.checkCancellation()
    try await Task { [base] in try await base.write(data, key: key) }.value
    await pause()
    try Task.checkCancellation()
  }
}

/// An engine that breaks a rule when many tasks use it.
struct RacyEngine: Sendable, CustomTestStringConvertible {
  let engineCase: FaultyEngineCase
  /// The check that detects it.
  let check: String

  var testDescription: String { engineCase.testDescription }

  init(_ check: String, _ engineCase: FaultyEngineCase) {
    (self.check, self.engineCase) = ("linearizability.\(check)", engineCase)
  }

  private static func transactions(
    _ rule: ContractRule, _ name: String,
    makeEngine: @escaping @Sendable (ReferenceEngine) -> any StorageEngine
  ) -> RacyEngine {
    RacyEngine(
      "transactions",
      .init(
        rule, name, also: [.t1, .w1, .w4, .r3, .c1, .c4, .l1],
        claiming: FaultyEngineCase.claimsOfTransactions, makeEngine: makeEngine))
  }

  /// A lost update is visible to the next read, by any method.
  private static let ofAnyRead: Set<ContractRule> = [.w1, .w4, .r2, .r3, .r5, .k3, .l1, .l2, .c1, .c4]

  static let all: [RacyEngine] = [
    .init(
      "single-keys",
      .init(.w1, "fills its cache with old values", also: ofAnyRead) { FillsItsCacheLate(base: $0) }),
    .init(
      "whole-reads",
      .init(.l2, "counts from a cache that is filled late", also: [.c1, .r3]) { CountsLate(base: $0) }),
    .init(
      "single-keys",
      .init(.c1, "loses updates of a page", also: ofAnyRead) { LosesUpdatesOfAPage(base: $0) }),
    .init(
      "single-keys",
      .init(.w1, "shows a task its own writes first", also: ofAnyRead) {
        ReadsItsOwnWritesOnly(base: $0)
      }),
    .init(
      "equal-values", .init(.w1, "does nothing under load", also: ofAnyRead) { WrongUnderLoad(base: $0) }
    ),
    .init(
      "single-keys",
      .init(.w1, "acknowledges too early", also: Set(ContractRule.allCases)) {
        AcknowledgesTooEarly(base: $0)
      }),
    .init("batches", .init(.w4, "applies in two steps", also: [.c1]) { AppliesInTwoSteps(base: $0) }),
    .init("batches", .init(.w4, "removes many in parts") { RemovesInParts(base: $0) }),
    .init("whole-reads", .init(.r3, "reads everything in two halves") { ReadsInTwoHalves(base: $0) }),
    .init("whole-reads", .init(.r3, "scans in pages") { ScansInPages(base: $0) }),
    .init(
      "batches",
      .init(.l1, "finds keys in a late index", also: [.c1, .r1]) { ExistsInALateIndex(base: $0) }),
    .init("two-engines", .cachesByGeneration),
    transactions(.t1, "does not notice what others change") { LooseTransactions(base: $0, level: .none) },
    transactions(.t1, "keeps out other transactions, and no other call") {
      LooseTransactions(base: $0, level: .otherTransactions)
    },
    transactions(.t1, "notices changes of the keys that a body writes") {
      LooseTransactions(base: $0, level: .keysWritten)
    },
    transactions(.t1, "notices changes of the keys that a body has read one by one") {
      LooseTransactions(base: $0, level: .keysRead)
    },
    transactions(.t1, "writes at once, and takes it back if the body throws") {
      LooseTransactions(base: $0, level: .writesAtOnce)
    },
    transactions(.t1, "commits what a body did before it threw") { CommitsThrownBodies(base: $0) },
    transactions(.c4, "says that a transaction was cancelled when it is done") {
      ThrowsAfterTransactions(base: $0)
    },
    .init("cancellation", .init(.c4, "gives up half a batch", also: [.w4, .c1]) { GivesUpABatch(base: $0) }),
    .init(
      "cancellation", .init(.c4, "removes and says no", also: [.w1, .c1]) { RemovesAndSaysNo(base: $0) }),
  ]
}
