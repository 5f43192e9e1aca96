import Foundation
import StockroomCore
import StockroomEngines
import StockroomLayers
import TestFixtures

/// Keys of various bytes and lengths: letters, NUL, slashes, accents in both forms, emoji, more than 500 bytes.
func hostileKeys(_ count: Int) -> [CacheKey] {
  let heads = [
    "plain", "", " ", "\0", "a/b", "../..", "%2f", "caf\u{e9}", "cafe\u{301}", "👩‍👩‍👧", "ß", "\u{1F1E9}\u{1F1EA}",
    "CON",
    String(repeating: "k", count: 500), String(repeating: "é", count: 250),
  ]
  return (0..<count).map { CacheKey(verbatim: "\(heads[$0 % heads.count])\($0 * 7_919 % count)") }
}

/// Fills the engine in ordinary batches and single writes, and overwrites some.
func fill(_ engine: any StorageEngine, _ keys: [CacheKey], batch: Int = 50) async throws {
  for start in stride(from: 0, to: keys.count, by: batch) {
    let keys = keys[start..<min(start + batch, keys.count)]
    try await engine.write(keys.enumerated().map { ($1, value(of: $1, size: $0 * 11 % 300)) })
  }
  for index in stride(from: 0, to: keys.count, by: 97) {
    try await engine.write(Data("overwritten".utf8), key: keys[index])
  }
}

func value(of key: CacheKey, size: Int) -> Data {
  Data(key.value.utf8) + Data(repeating: UInt8(truncatingIfNeeded: size), count: size)
}

extension EngineCatalog {
  static func open(_ name: String, in directory: URL) async throws -> any StorageEngine {
    try await select([name])[0].open(directory, .process)
  }
}

/// An engine that cannot store the times of others.
struct WithoutTimes<Base: StorageEngine>: StorageLayer {
  let base: Base
  var capabilities: EngineCapabilities { base.capabilities.subtracting(.preservesTimestamps) }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.write(entries.map { ($0.key, $0.data) })
  }
}

/// An engine that alters entries before it writes them.
struct Altering<Base: StorageEngine>: StorageLayer {
  let base: Base
  let alter: @Sendable (inout StorageEntry) -> Void
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.writeEntries(
      entries.map { entry in
        var entry = entry
        alter(&entry)
        return entry
      })
  }
}

/// An engine without sequence numbers, like one outside this package. It keeps times and the order of first writes.
struct WithoutSequences<Base: StorageEngine>: StorageLayer {
  let base: Base
  func readAllEntries() async throws -> [StorageEntry] { try await base.readAllEntries().map(copied) }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await base.readEntries(keys: keys).map(copied)
  }
  private func copied(_ entry: StorageEntry) -> StorageEntry {
    StorageEntry(key: entry.key, data: entry.data, createdAt: entry.createdAt, updatedAt: entry.updatedAt)
  }
}

/// An engine without a feed in which something is written whenever it is listed.
struct ConstantlyChangingLayer<Base: StorageEngine>: StorageLayer {
  let base: Base
  var capabilities: EngineCapabilities { base.capabilities.subtracting(.changeFeed) }
  func allKeys() async throws -> [CacheKey] {
    try await base.write(Data(), key: CacheKey(verbatim: UUID().uuidString))
    return try await base.allKeys()
  }
}
