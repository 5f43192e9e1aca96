#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The reads that transactions use, on the engine's own thread and while no other caller writes.
package protocol EntryReader: Sendable {
  /// The value of the key, or nil if it is absent.
  func data(of key: CacheKey) throws -> Data?

  /// The value of each key, or nil if it is absent. Default: reads them one by one.
  func data(of keys: [CacheKey]) throws -> [Data?]

  /// Whether there is an entry under the key.
  func contains(_ key: CacheKey) throws -> Bool

  /// The number of the keys that have entries; no two keys may be the same. Default: checks them one by one.
  func count(of keys: [CacheKey]) throws -> Int

  /// The number of entries.
  func count() throws -> Int

  /// Calls `body` with the keys in byte order, from the first one that is not before `start`, until it returns false.
  func forEachKey(from start: CacheKey, _ body: (CacheKey) throws -> Bool) throws
}

extension EntryReader {
  package func data(of keys: [CacheKey]) throws -> [Data?] { try keys.map { try data(of: $0) } }

  package func count(of keys: [CacheKey]) throws -> Int { try keys.count { try contains($0) } }
}
