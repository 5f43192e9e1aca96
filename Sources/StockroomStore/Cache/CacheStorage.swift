import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The entries of one namespace in an engine.
struct CacheStorage: Sendable {
  private static let pageSize = 100

  /// An entry and the size of its bytes. Nil stands for an entry that cannot be decoded.
  typealias StoredEntry = (key: CacheKey, entry: CacheEntry?, size: Int)

  let engine: any StorageEngine
  let namespace: CacheNamespace

  /// The entry of a key. Nil if there is none, or if the entry belongs to another key with the same hash.
  ///
  /// - Throws: what the engine throws; `StorageError` with code `decodingFailed` if the bytes are not those of an entry.
  func read(_ key: EncodedKey) async throws -> CacheEntry? {
    let name = namespace.name(of: key)
    guard let data = try await engine.read(key: name.key) else { return nil }
    do {
      let entry = try CacheEntry(data)
      return entry.fullName == name.fullName ? entry : nil
    } catch {
      throw StorageError(
        .decodingFailed, "The \(data.count) bytes of \(name.key) are not a cache entry.", underlying: error)
    }
  }

  /// Calls `body` with the entries of the namespace and their sizes, in pages. An entry that cannot be decoded is nil.
  func forEachPage(_ body: ([StoredEntry]) async throws -> Void) async throws {
    // One scan if the engine has no ordered scans, since such an engine sorts all keys for each scan.
    let limit = engine.capabilities.contains(.orderedScans) ? Self.pageSize : nil
    var range = KeyRange.prefix(namespace.prefix)
    repeat {
      let page = try await engine.scan(range, limit: limit)
      range.after = page.last?.key
      try await body(entries(page.lazy.map { ($0.key, $0.data) }))
      if page.count < limit ?? .max { return }
    } while true
  }

  /// The entries of these keys that are in the namespace, in any order.
  func entries(of keys: [CacheKey]) async throws -> [StoredEntry] {
    entries(try await engine.values(of: keys).lazy.map { ($0.key, $0.value) })
  }

  private func entries(_ values: some Sequence<(CacheKey, Data)>) -> [StoredEntry] {
    values.map { (key: $0, entry: Self.entry($1), size: $1.count) }.filter { namespace.contains($0.entry) }
  }

  /// Removes all entries of the namespace as one batch. An entry that another cache replaces at the same time may be
  /// removed as well.
  func removeAll() async throws {
    var keys: [CacheKey] = []
    try await forEachPage { page in keys += page.map(\.key) }
    if !keys.isEmpty { try await engine.remove(keys: keys) }
  }

  /// Removes the expired entries of the namespace in batches, and returns their keys.
  func removeExpired(at date: Date) async throws -> [CacheKey] {
    var expired: [CacheKey] = []
    try await forEachPage { page in
      expired += page.filter { $0.entry?.isExpired(at: date) ?? false }.map(\.key)
    }
    var removed: [CacheKey] = []
    for start in stride(from: 0, to: expired.count, by: Self.pageSize) {
      let portion = Array(expired[start..<min(start + Self.pageSize, expired.count)])
      removed += try await removeExpired(portion, at: date)
    }
    return removed
  }

  /// Reads the entries again and removes the expired ones. Another cache may have replaced some of them since they were read.
  private func removeExpired(_ keys: [CacheKey], at date: Date) async throws -> [CacheKey] {
    if engine.capabilities.contains(.transactions) {
      return try await engine.withTransaction { transaction in
        let expired = Self.expired(try transaction.values(of: keys), at: date)
        for key in expired { try transaction.remove(key: key) }
        return expired
      }
    }
    let expired = Self.expired(try await engine.values(of: keys), at: date)
    if !expired.isEmpty { try await engine.remove(keys: expired) }
    return expired
  }

  private static func expired(_ values: [CacheKey: Data], at date: Date) -> [CacheKey] {
    values.filter { entry($0.value)?.isExpired(at: date) ?? false }.map(\.key)
  }

  private static func entry(_ data: Data) -> CacheEntry? {
    do { return try CacheEntry(data) } catch { return nil }
  }
}
