import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import StockroomMemory
import TestFixtures

// Engines behind layers that compress, cache, replicate or page.

extension FaultyEngineCase {
  static let ofLayers: [FaultyEngineCase] = [
    .init(.v2, "inflates no more than 512 KiB of zeros") {
      ChangingEngine(
        base: $0,
        onTheWayIn: { data in
          data.count > 512 << 10 && data.allSatisfy { $0 == 0 } ? data.prefix(512 << 10) : data
        })
    },
    .init(.v2, "stores 65,535 bytes of what cannot be compressed") {
      ChangingEngine(
        base: $0, onTheWayIn: { isCompressible($0) ? $0 : $0.prefix(65_535) })
    },
    .init(
      .w1, "drops writes that are older than what another machine has written", also: [.w2],
      claiming: [.atomicBatches, .snapshotReads, .orderedScans, .preservesTimestamps]
    ) { _ in LetsTheLastWriteWin(base: MemoryStorageEngine()) },
    .init(.k3, "caches values by the texts that keys were made from") { CachesByTexts(base: $0) },
    .init(
      .k3, "lists keys by offset while others come and go", also: [.c1],
      claiming: [.atomicBatches, .orderedScans]
    ) { PagesByOffset(base: $0, .keys) },
    .init(
      .r3, "lists entries by offset while others come and go", also: [.c1],
      claiming: [.atomicBatches, .orderedScans]
    ) { PagesByOffset(base: $0, .pairs) },
    .init(
      .r3, "scans by offset while others come and go", also: [.c1], claiming: [.atomicBatches, .orderedScans]
    ) { PagesByOffset(base: $0, .scan) },
  ]

  /// Whether the value is short, or a part of it is repeated within the window of a compression.
  private static func isCompressible(_ data: Data) -> Bool {
    guard data.count > 65_535 else { return true }
    let bytes = [UInt8](data.prefix(65_535))
    let part = bytes[1_000..<1_064]
    return (1_001..<40_000).contains { bytes[$0] == bytes[1_000] && bytes[$0..<$0 + 64].elementsEqual(part) }
  }
}

/// Replicates: of two writes of a key the one with the later time wins, in whatever order they arrive.
struct LetsTheLastWriteWin: FaultyEngine {
  let base: MemoryStorageEngine
  func writeEntries(_ entries: [StorageEntry]) async throws { try await base.writeEntries(entries) }
  func write(_ data: Data, key: CacheKey) async throws {
    // The clock of this process may be set back a little.
    if let updated = try await base.updatedAt(key: key), updated > Date() + 60 { return }
    try await base.write(data, key: key)
  }
}

/// Caches reads in a table whose keys are the texts from which the engine's keys were made.
final class CachesByTexts: InterceptingEngine {
  private struct Cache {
    var values: [String: Data] = [:]
    var changes = 0
  }
  let base: ReferenceEngine
  private let cache = MutexProtected(Cache())
  init(base: ReferenceEngine) { self.base = base }

  private func forget() {
    cache.withLock { cache in
      cache.values = [:]
      cache.changes += 1
    }
  }

  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    guard isChange else { return try await work() }
    forget()
    // A concurrent read may have returned the previous value.
    defer { forget() }
    return try await work()
  }

  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await call(isChange: true) { [base] in try await base.writeEntries(entries) }
  }

  func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    let (known, changes) = cache.withLock { ($0.values[key.rawValue], $0.changes) }
    if let known { return known }
    let value = try await base.read(key: key)
    cache.withLock { if $0.changes == changes { $0.values[key.rawValue] = value } }
    return value
  }
}

/// Requests each page by the number of entries read so far instead of the last key.
struct PagesByOffset: FaultyEngine {
  enum Call: Sendable { case keys, pairs, scan }

  let base: ReferenceEngine
  private let call: Call
  private let size = 250

  init(base: ReferenceEngine, _ call: Call) { (self.base, self.call) = (base, call) }

  private func pages<Element: Sendable>(_ list: () async throws -> [Element]) async throws -> [Element] {
    var found: [Element] = []
    while true {
      let page = try await list().dropFirst(found.count).prefix(size)
      found += page
      if page.count < size { return found }
      for _ in 0..<3 { await Task.yield() }
    }
  }

  func allKeys() async throws -> [CacheKey] {
    guard call == .keys else { return try await base.allKeys() }
    return try await pages { try await base.allKeys() }
  }

  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    guard call == .pairs else { return try await base.readAllDataAndKeys() }
    return try await pages { try await base.scan(.all, limit: nil) }
  }

  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    guard call == .scan, limit == nil else { return try await base.scan(range, limit: limit) }
    return try await pages { try await base.scan(range, limit: nil) }
  }
}
