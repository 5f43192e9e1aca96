import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines that load their entries lazily, and forget to do so in one method.

extension FaultyEngineCase {
  static let ofFirstCalls: [FaultyEngineCase] = [
    .init(persistent: .l1, "finds no keys before it has read anything", also: [.w6]) { base, _ in
      LoadsLate(base: base, except: .existence)
    },
    .init(persistent: .r5, "scans nothing before it has read anything", also: [.w6]) { base, _ in
      LoadsLate(base: base, except: .scan)
    },
    .init(persistent: .w1, "removes nothing before it has read anything", also: [.w6]) { base, _ in
      LoadsLate(base: base, except: .removal)
    },
    .init(
      persistent: .w2, "takes what it overwrites for absent before it has read anything", also: [.r6, .w6]
    ) { base, _ in LoadsLate(base: base, except: .overwrite) },
    .init(persistent: .r6, "numbers the first entry after its opening from the beginning", also: [.w6]) {
      base, _ in LoadsLate(base: base, except: .place)
    },
    .init(persistent: .l2, "counts an overwrite before it has read anything", also: [.w6]) { base, _ in
      LoadsLate(base: base, except: .count)
    },
    .init(
      persistent: .t1, "runs the first body after its opening on nothing", also: [.w6],
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, _ in LoadsLate(base: base, except: .body) },
    .init(persistent: .c1, "loads its entries in each of many first calls", also: [.c2, .o3]) { base, _ in
      LoadsInEachCall(base: base)
    },
    .init(
      persistent: .w6, "saves what it has loaded when it is closed",
      also: [.c1, .c2, .c6, .o1, .o2, .o3, .o4, .o5, .f2, .f3]
    ) { base, _ in SavesWhatItHasLoaded(base: base, .nothing) },
    .init(persistent: .o3, "saves what it has loaded when it is closed in its first calls") { base, _ in
      SavesWhatItHasLoaded(base: base, .aPart)
    },
    .init(.c4, "keeps that its first call was cancelled") { KeepsItsFirstCancellation(base: $0) },
  ]
}

/// Loads its entries in its first call, unless that is of one kind.
final class LoadsLate: InterceptingEngine {
  enum Call: Sendable { case existence, scan, removal, overwrite, place, count, body }

  let base: ReferenceEngine
  private let unaware: Call
  private let isLoaded = MutexProtected(false)
  /// The entries that it has put at the beginning, and the number of existing entries that it has counted.
  private let first = MutexProtected<[CacheKey]>([])
  private let surplus = MutexProtected(0)

  init(base: ReferenceEngine, except call: Call) { (self.base, unaware) = (base, call) }

  /// Whether it has not loaded its entries in a call of this kind.
  private func isUnaware(in call: Call) -> Bool {
    isLoaded.withLock { isLoaded in
      defer { isLoaded = true }
      return !isLoaded && call == unaware
    }
  }

  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    isLoaded.withLock { $0 = true }
    return try await work()
  }

  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    let found = try await base.keysExist(keys)
    return isUnaware(in: .existence) ? [] : found
  }

  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let found = try await base.scan(range, limit: limit)
    return isUnaware(in: .scan) ? [] : found
  }

  func remove(key: CacheKey) async throws {
    try key.validate()
    if isUnaware(in: .removal) { return }
    try await base.remove(key: key)
  }

  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    let isThere = try await base.keyExists(key)
    switch unaware {
    case .overwrite where isUnaware(in: .overwrite):
      try await base.apply([.remove(key: key), .write(data, key: key)])
    case .place where isUnaware(in: .place):
      try await base.write(data, key: key)
      if !isThere { first.withLock { $0.append(key) } }
    case .count where isUnaware(in: .count):
      try await base.write(data, key: key)
      if isThere { surplus.withLock { $0 += 1 } }
    default:
      isLoaded.withLock { $0 = true }
      try await base.write(data, key: key)
    }
  }

  func keyCount() async throws -> Int {
    isLoaded.withLock { $0 = true }
    return try await base.keyCount() + surplus.withLock { $0 }
  }

  func readAllEntries() async throws -> [StorageEntry] {
    isLoaded.withLock { $0 = true }
    let (entries, first) = (try await base.readAllEntries(), first.withLock { Set($0) })
    return entries.filter { first.contains($0.key) } + entries.filter { !first.contains($0.key) }
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    guard isUnaware(in: .body) else { return try await base.withTransaction(body) }
    return try await base.withTransaction { transaction in
      let copy = CopyTransaction([:])
      // Even if the body throws.
      defer { copy.end() }
      let result = try body(copy)
      try transaction.apply(copy.end())
      return result
    }
  }
}
