import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import Testing

/// An engine that rewrites an entry with the same value before entries are read.
private struct RewritesFirst<Base: StorageEngine>: StorageLayer {
  final class Time: Sendable {
    let date = MutexProtected(Date.distantPast)
  }

  let base: Base
  let key: CacheKey
  /// The time just before the last write.
  let lastWrite = Time()

  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    let now = Date.now
    lastWrite.date.withLock { $0 = now }
    // Waits until the clock advances, which may take some microseconds.
    while Date.now.timeIntervalSince(now) < 0.000_01 {}
    if let value = try await base.read(key: key) { try await base.write(value, key: key) }
    return try await base.readEntries(keys: keys)
  }
}

@Suite("Timestamps of entries in a namespace")
struct NamespacedTimesTests {
  @Test(
    "Beside a corrupted neighbor, an entry's timestamp is not later than the time of the read")
  func writtenSince() async throws {
    let place = MemoryStorageEngine()
    let (below, key) = (place.checksummed(), CacheKey(verbatim: "k"))
    try await below.namespaced("a").write(Data([1]), key: key)
    try await place.write(Data([1]), key: CacheKey(verbatim: "b/k"))
    let rewriting = RewritesFirst(base: below, key: CacheKey(verbatim: "a/k"))
    let entries = try await rewriting.namespaced("a").readAllEntries()
    #expect(entries.map(\.key) == [key])
    let last = rewriting.lastWrite.date.withLock { $0 }
    // Both times are rounded.
    #expect(try #require(entries.first).updatedAt <= last + 0.000_005)
  }
}
