#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What transactions read of an engine, on its own thread and while nobody else writes.
package protocol EntryReader: Sendable {
  /// The value of the key, or nil if it is absent.
  func data(of key: CacheKey) throws -> Data?

  /// Whether there is an entry under the key.
  func contains(_ key: CacheKey) throws -> Bool

  /// The number of entries.
  func count() throws -> Int

  /// Calls `body` with the keys in byte order, from the first one that is not before `start`, until it returns false.
  func forEachKey(from start: CacheKey, _ body: (CacheKey) throws -> Bool) throws
}
