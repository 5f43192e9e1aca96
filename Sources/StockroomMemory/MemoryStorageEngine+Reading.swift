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
    return try look { $0.entries[key]?.data }
  }

  /// O(K log N) for K keys.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try keys.validate()
    return try withSnapshot { table in keys.compactMap { table.entries[$0]?.data } }
  }

  /// O(K log N) for K keys.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try keys.validate()
    return try withSnapshot { table in
      keys.compactMap { key in table.entries[key].map { (key, $0.data) } }
    }
  }

  /// O(N).
  @concurrent public func readAllData() async throws -> [Data] {
    try withSnapshot { $0.entries.map { $0.value.data } }
  }

  /// O(N).
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try withSnapshot { $0.entries.map { ($0.key, $0.value.data) } }
  }

  /// O(N), or O(N log N) after most of what was written has been removed.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try withSnapshot { table in
      table.indicesInOrderOfCreation().map { index in
        let (key, entry) = table.entries[index]
        return StorageEntry(
          key: key, data: entry.data, createdAt: entry.header.createdAt.date,
          updatedAt: entry.header.updatedAt.date)
      }
    }
  }

  /// O(log N + R) for R entries returned.
  @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    let cursor = KeyRangeCursor(range)
    let start = CacheKey(verbatim: String(decoding: cursor.start, as: UTF8.self))
    let limit = max(0, limit ?? .max)
    return try withSnapshot { table in
      var found: [(key: CacheKey, data: Data)] = []
      if limit == 0 { return found }
      table.sortedKeys.forEach(from: start) { key in
        switch cursor.position(of: key) {
        case .before: return true
        case .behind: return false
        case .inside:
          if let data = table.entries[key]?.data { found.append((key, data)) }
          return found.count < limit
        }
      }
      return found
    }
  }

  /// O(log N).
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try key.validate()
    return try look { $0.entries[key] != nil }
  }

  /// O(K log N) for K keys.
  @concurrent public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try keys.validate()
    return try withSnapshot { table in keys.filter { table.entries[$0] != nil } }
  }

  /// O(1).
  public func keyCount() async throws -> Int {
    try look { $0.entries.count }
  }

  /// O(N).
  @concurrent public func allKeys() async throws -> [CacheKey] {
    try withSnapshot { Array($0.entries.keys) }
  }

  /// O(log N).
  public func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try look { $0.entries[key]?.header.createdAt.date }
  }

  /// O(log N).
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return try look { $0.entries[key]?.header.updatedAt.date }
  }
}
