import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import TestFixtures
import Testing

// Correct engines that handle large sizes, names or equivalent methods in unusual ways.

/// A correct engine that is unusual in ways that affect checks of sizes, names and methods.
struct UnusualSizeEngine: Sendable, CustomTestStringConvertible {
  let name: String
  let capabilities: EngineCapabilities
  let makeEngine: @Sendable (URL) throws -> any StorageEngine

  var testDescription: String { name }

  private static let usual: EngineCapabilities = [.atomicBatches, .snapshotReads, .orderedScans]

  static let all: [UnusualSizeEngine] = [
    .init(name: "reads in pages of one snapshot", capabilities: usual) { _ in
      PagesOfOneSnapshot(base: try ReferenceEngine())
    },
    .init(name: "is sharded by hash", capabilities: [.orderedScans]) { _ in try ShardedEngine() },
    .init(name: "has another order for every method", capabilities: usual) { _ in
      OrdersByMethod(base: try ReferenceEngine())
    },
    .init(name: "collects a batch in parts, and writes them at once", capabilities: usual) { _ in
      StagedBatches(base: try ReferenceEngine())
    },
    .init(name: "has room for 64 MiB in a file", capabilities: ReferenceEngine.promises) {
      LimitedEngine(base: try ReferenceEngine(directory: $0))
    },
    .init(name: "makes a call of each key", capabilities: []) { _ in LockedEngine() },
    .init(name: "gives up every other transaction", capabilities: FaultyEngineCase.claimsOfTransactions) {
      _ in
      GivesUpTransactions(base: try ReferenceEngine(claiming: FaultyEngineCase.claimsOfTransactions))
    },
  ]
}

@Suite("Unusual but correct engines and sizes")
struct UnusualSizeTests {
  @Test(
    "Unusual engines pass every check of sizes, names and ways",
    arguments: UnusualSizeEngine.all.enumerated().map { ($0, $1) })
  func passes(_ number: Int, _ unusual: UnusualSizeEngine) async {
    let suite = ConformanceSuite(
      unusual.name, capabilities: unusual.capabilities,
      budget: TestRun.isExhaustive ? .standard : .quick
    ) { try unusual.makeEngine($0) }
    await suite.checks.half(of: number).filter { SizeFault.isOwn($0.id) }.runAll()
  }
}

/// Copies a snapshot, and returns it page by page.
struct PagesOfOneSnapshot: FaultyEngine {
  let base: ReferenceEngine
  private func paged<Element>(_ all: [Element]) async -> [Element] {
    var found: [Element] = []
    for start in stride(from: 0, to: all.count, by: 100) {
      found += all[start..<min(start + 100, all.count)]
      await Task.yield()
    }
    return found
  }
  func readAllData() async throws -> [Data] { await paged(try await base.readAllData()) }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    await paged(try await base.readAllDataAndKeys())
  }
  func readAllEntries() async throws -> [StorageEntry] { await paged(try await base.readAllEntries()) }
  func allKeys() async throws -> [CacheKey] { await paged(try await base.allKeys()) }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    await paged(try await base.scan(range, limit: limit))
  }
  func read(keys: [CacheKey]) async throws -> [Data] { await paged(try await base.read(keys: keys)) }
}

/// Four engines, each with the keys of some hashes: nothing is atomic, and nothing is ordered unless it is sorted.
struct ShardedEngine: StorageEngine {
  private let shards: [ReferenceEngine]

  init() throws { shards = try (0..<4).map { _ in try ReferenceEngine(claiming: []) } }

  let capabilities: EngineCapabilities = [.orderedScans]
  private func shard(of key: CacheKey) -> ReferenceEngine {
    shards[Int(key.value.utf8.reduce(5_381 as UInt32) { $0 &* 33 &+ UInt32($1) } % 4)]
  }
  func write(_ data: Data, key: CacheKey) async throws { try await shard(of: key).write(data, key: key) }
  func read(key: CacheKey) async throws -> Data? { try await shard(of: key).read(key: key) }
  func remove(key: CacheKey) async throws { try await shard(of: key).remove(key: key) }
  func allKeys() async throws -> [CacheKey] {
    var keys: [CacheKey] = []
    for shard in shards { keys += try await shard.allKeys() }
    return keys
  }
  func createdAt(key: CacheKey) async throws -> Date? { try await shard(of: key).createdAt(key: key) }
  func updatedAt(key: CacheKey) async throws -> Date? { try await shard(of: key).updatedAt(key: key) }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    var found: [(key: CacheKey, data: Data)] = []
    for shard in shards { found += try await shard.scan(range, limit: limit) }
    return Array(found.sorted { $0.key < $1.key }.prefix(max(0, limit ?? .max)))
  }
}

/// If the order is unspecified, no two methods return the same order.
struct OrdersByMethod: FaultyEngine {
  let base: ReferenceEngine
  func allKeys() async throws -> [CacheKey] { try await base.allKeys().reversed() }
  func readAllData() async throws -> [Data] {
    try await base.readAllEntries().sorted { $0.updatedAt > $1.updatedAt }.map(\.data)
  }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    let entries = try await base.readAllDataAndKeys()
    return Array(entries.dropFirst(entries.count / 3) + entries.prefix(entries.count / 3))
  }
}

/// Processes a batch in parts, and makes it visible once it is complete.
struct StagedBatches: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await apply(dataAndKeys.map { .write($0.data, key: $0.key) })
  }
  func remove(keys: [CacheKey]) async throws { try await apply(keys.map { .remove(key: $0) }) }
  func apply(_ operations: [StorageOperation]) async throws {
    var staged: [StorageOperation] = []
    for start in stride(from: 0, to: operations.count, by: 25) {
      staged += operations[start..<min(start + 25, operations.count)]
      await Task.yield()
    }
    try await base.apply(staged)
  }
}
