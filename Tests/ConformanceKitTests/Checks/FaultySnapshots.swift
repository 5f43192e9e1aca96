import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import StockroomMemory

// Engines that read many entries from more than one snapshot.

extension FaultyEngineCase {
  private static let claimsOfTimes: EngineCapabilities = [
    .atomicBatches, .snapshotReads, .orderedScans, .preservesTimestamps,
  ]

  static let ofSnapshots: [FaultyEngineCase] =
    [
      .init(.r3, "reads everything in parts") { ReadsEverythingInParts(base: $0) },
      .init(.r3, "reads all values in parts") { ReadsAllValuesInParts(base: $0) },
      .init(.r3, "reads all entries in parts") { ReadsAllEntriesInParts(base: $0) },
      .init(.r3, "scans in parts") { ScansInParts(base: $0) },
      .init(.r3, "lists keys in parts") { ListsKeysInParts(base: $0) },
      .init(.r3, "reads many values one by one") { ReadsOneByOne(base: $0, .readMany) },
      .init(.r3, "reads many entries one by one") { ReadsOneByOne(base: $0, .readDataAndKeys) },
      .init(.r3, "reads some entries one by one", claiming: claimsOfTimes) {
        ReadsOneByOne(base: $0, .readEntries)
      },
      .init(.r3, "reads the times of all entries after their values", claiming: claimsOfTimes) { _ in
        ReadsTimesLater(base: MemoryStorageEngine())
      },
      .init(.r3, "reads the values of some entries after their times", claiming: claimsOfTimes) { _ in
        ReadsValuesLater(base: MemoryStorageEngine())
      },
    ]
    + PagesByNumber.Method.allCases.map { method in
      .init(.r3, "reads \(method) by the numbers of pages", claiming: [.atomicBatches, .orderedScans]) {
        PagesByNumber(base: $0, method)
      }
    }
}

/// Skips as many entries as it has read, despite removals meanwhile.
struct PagesByNumber: FaultyEngine {
  enum Method: CaseIterable { case keys, values, valuesAndKeys, entries, scans }
  let base: ReferenceEngine
  private let method: Method
  init(base: ReferenceEngine, _ method: Method) { (self.base, self.method) = (base, method) }

  private func read<Element>(_ method: Method, _ all: () async throws -> [Element]) async throws -> [Element]
  {
    guard method == self.method else { return try await all() }
    var read: [Element] = []
    while true {
      let page = try await all().dropFirst(read.count).prefix(100)
      read += page
      if page.count < 100 { return read }
      await Task.yield()
    }
  }

  func allKeys() async throws -> [CacheKey] { try await read(.keys) { try await base.allKeys() } }
  func readAllData() async throws -> [Data] { try await read(.values) { try await base.readAllData() } }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await read(.valuesAndKeys) { try await base.readAllDataAndKeys() }
  }
  func readAllEntries() async throws -> [StorageEntry] {
    try await read(.entries) { try await base.readAllEntries() }
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await read(.scans) { try await base.scan(range, limit: limit) }
  }
}

/// Claims snapshots but reads key by key.
struct ReadsEverythingInParts: FaultyEngine {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    var entries: [(key: CacheKey, data: Data)] = []
    for key in try await base.allKeys() {
      if let data = try await base.read(key: key) { entries.append((key, data)) }
      await Task.yield()
    }
    return entries
  }
}

struct ReadsAllValuesInParts: FaultyEngine {
  let base: ReferenceEngine
  func readAllData() async throws -> [Data] {
    try await ReadsEverythingInParts(base: base).readAllDataAndKeys().map(\.data)
  }
}

struct ScansInParts: FaultyEngine {
  let base: ReferenceEngine
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    var entries: [(key: CacheKey, data: Data)] = []
    for (key, _) in try await base.scan(range, limit: limit) {
      if let data = try await base.read(key: key) { entries.append((key, data)) }
      if entries.count < 100 { await Task.yield() }
    }
    return entries
  }
}

struct ReadsAllEntriesInParts: FaultyEngine {
  let base: ReferenceEngine
  func readAllEntries() async throws -> [StorageEntry] {
    var entries: [StorageEntry] = []
    for var entry in try await base.readAllEntries() {
      guard let data = try await base.read(key: entry.key) else { continue }
      entry.data = data
      entries.append(entry)
      await Task.yield()
    }
    return entries
  }
}

struct ListsKeysInParts: FaultyEngine {
  let base: ReferenceEngine
  func allKeys() async throws -> [CacheKey] {
    let keys = try await base.allKeys()
    guard let middle = keys.dropFirst(keys.count / 2).first, keys.count < 100 else { return keys }
    for _ in 0..<30 { await Task.yield() }
    return keys.filter { $0 < middle } + (try await base.allKeys().filter { $0 >= middle })
  }
}

/// Reads many keys one by one, each at a different time.
struct ReadsOneByOne: FaultyEngine {
  enum Call { case readMany, readDataAndKeys, readEntries }
  let base: ReferenceEngine
  private let call: Call
  init(base: ReferenceEngine, _ call: Call) { (self.base, self.call) = (base, call) }

  private func each(_ keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try keys.validate()
    var found: [(key: CacheKey, data: Data)] = []
    for key in keys {
      if let data = try await base.read(key: key) { found.append((key, data)) }
      await Task.yield()
    }
    return found
  }
  func read(keys: [CacheKey]) async throws -> [Data] {
    call == .readMany ? try await each(keys).map(\.data) : try await base.read(keys: keys)
  }
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    call == .readDataAndKeys ? try await each(keys) : try await base.readDataAndKeys(keys: keys)
  }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    var entries = try await base.readEntries(keys: keys)
    guard call == .readEntries else { return entries }
    let found = Dictionary(try await each(keys).map { ($0.key, $0.data) }) { first, _ in first }
    for index in entries.indices { entries[index].data = found[entries[index].key] ?? entries[index].data }
    return entries
  }
}

struct ReadsTimesLater: FaultyEngine {
  let base: MemoryStorageEngine
  var capabilities: EngineCapabilities { base.capabilities.subtracting([.transactions, .changeFeed]) }
  func writeEntries(_ entries: [StorageEntry]) async throws { try await base.writeEntries(entries) }
  func readAllEntries() async throws -> [StorageEntry] {
    var entries = try await base.readAllEntries()
    for index in entries.indices {
      await Task.yield()
      let key = entries[index].key
      if let created = try await base.createdAt(key: key), let updated = try await base.updatedAt(key: key) {
        (entries[index].createdAt, entries[index].updatedAt) = (created, updated)
      }
    }
    return entries
  }
}

struct ReadsValuesLater: FaultyEngine {
  let base: MemoryStorageEngine
  var capabilities: EngineCapabilities { base.capabilities.subtracting([.transactions, .changeFeed]) }
  func writeEntries(_ entries: [StorageEntry]) async throws { try await base.writeEntries(entries) }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    var entries = try await base.readEntries(keys: keys)
    for index in entries.indices {
      await Task.yield()
      entries[index].data = try await base.read(key: entries[index].key) ?? entries[index].data
    }
    return entries
  }
}
