import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The entries of one namespace in an engine.
struct CacheStorage: Sendable {
  let engine: any StorageEngine
  let namespace: CacheNamespace

  /// The entry of a key, or nil if there is none, or only that of another key with the same hash.
  ///
  /// - Throws: what the engine throws; `StorageError` with code `decodingFailed` if a cache did not write this.
  func read(_ key: KeyText) async throws -> CacheEntry? {
    let name = namespace.name(of: key)
    guard let data = try await engine.read(key: name.key) else { return nil }
    do {
      let entry = try CacheEntry(data)
      return entry.proof == name.proof ? entry : nil
    } catch {
      throw StorageError(
        .decodingFailed, "The \(data.count) bytes of \(name.key) are no entry of a cache.", underlying: error)
    }
  }

  /// Hands out the entries of the namespace in pages, with nil for what cannot be decoded, and the number of bytes.
  func forEachPage(_ body: ([(key: CacheKey, entry: CacheEntry?, size: Int)]) async throws -> Void)
    async throws
  {
    // An engine that has to sort all keys for a scan does it once.
    let limit = engine.capabilities.contains(.orderedScans) ? 100 : nil
    var range = KeyRange.prefix(namespace.prefix)
    repeat {
      let page = try await engine.scan(range, limit: limit)
      range.after = page.last?.key
      try await body(
        page.map { (key: $0.key, entry: Self.entry($0.data), size: $0.data.count) }
          .filter { namespace.contains($0.entry) })
      if page.count < limit ?? .max { return }
    } while true
  }

  /// Removes the entries of the namespace for which the condition holds, as one batch, and returns their keys.
  func removeAll(where isUnwanted: (CacheEntry?) -> Bool) async throws -> [CacheKey] {
    var keys: [CacheKey] = []
    try await forEachPage { page in keys += page.filter { isUnwanted($0.entry) }.map(\.key) }
    if !keys.isEmpty { try await engine.remove(keys: keys) }
    return keys
  }

  /// Does the operations as one batch.
  func apply(_ operations: [StorageOperation]) async throws {
    guard operations.count == 1 else { return try await engine.apply(operations) }
    switch operations[0] {
    case .write(let data, let key): try await engine.write(data, key: key)
    case .remove(let key): try await engine.remove(key: key)
    case .removeAll: try await engine.removeAllData()
    }
  }

  private static func entry(_ data: Data) -> CacheEntry? {
    do { return try CacheEntry(data) } catch { return nil }
  }
}
