import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension MemoryStorageEngine {
  /// O(log N).
  public func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return try withTable { $0.entries[key]?.data }
  }

  /// O(K log N) for K keys.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try await find(keys) { _, entry in entry.data }
  }

  /// O(K log N) for K keys.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await find(keys) { key, entry in (key, entry.data) }
  }

  /// O(N).
  @concurrent public func readAllData() async throws -> [Data] {
    try await withSnapshot {
      try await $0.entries.compactMap(yieldingTo: &$1, every: Self.portion) { $0.value.data }
    }
  }

  /// O(N).
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await withSnapshot {
      try await $0.entries.compactMap(yieldingTo: &$1, every: Self.portion) { ($0.key, $0.value.data) }
    }
  }

  /// O(N), or O(N log N) after most of the entries have been removed.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try await withSnapshot { table, timer in
      let indices = table.indicesInOrderOfCreation()
      try await timer.yieldIfDue()
      return try await indices.compactMap(yieldingTo: &timer, every: Self.portion) { index in
        let (key, entry) = table.entries[index]
        return StorageEntry(key: key, data: entry.data, header: entry.header)
      }
    }
  }

  /// O(K log N) for K keys.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await find(Array(Set(keys))) { key, entry in
      StorageEntry(key: key, data: entry.data, header: entry.header)
    }.sortedByCreation()
  }

  /// O((R + 1) log N) for R entries returned.
  @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    return try await withSnapshot { table, timer in
      let keys = table.sortedKeys.keys(in: range, limit: limit ?? .max)
      try await timer.yieldIfDue()
      return try await keys.compactMap(yieldingTo: &timer, every: Self.portion) { key in
        table.entries[key].map { (key, $0.data) }
      }
    }
  }

  /// O(log N).
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try key.validate()
    return try withTable { $0.entries[key] != nil }
  }

  /// O(K log N) for K keys.
  @concurrent public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await find(keys) { key, _ in key }
  }

  /// O(1).
  public func keyCount() async throws -> Int {
    try withTable { $0.entries.count }
  }

  /// O(N).
  @concurrent public func allKeys() async throws -> [CacheKey] {
    try await withSnapshot {
      try await $0.entries.compactMap(yieldingTo: &$1, every: Self.portion) { $0.key }
    }
  }

  /// O(log N).
  public func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try withTable { $0.entries[key]?.header.createdAt.date }
  }

  /// O(log N).
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try withTable { $0.entries[key]?.header.updatedAt.date }
  }
}

extension MemoryStorageEngine {
  /// The results of `transform` for the keys that exist.
  private func find<Result>(
    _ keys: [CacheKey], _ transform: (CacheKey, MemoryTable.Entry) -> Result
  ) async throws -> [Result] {
    try keys.validate()
    return try await withSnapshot { table, timer in
      try await keys.compactMap(yieldingTo: &timer, every: Self.portion) { key in
        table.entries[key].map { transform(key, $0) }
      }
    }
  }
}
