import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that optimize for equal values, or values that seem equal, and for the texts that keys are made from.

/// Stores a large value once for all keys that have it, and removes it with the first of them.
struct SharesEqualValues: FaultyEngine {
  let base: ReferenceEngine
  func remove(key: CacheKey) async throws {
    let data = try await base.read(key: key)
    try await base.remove(key: key)
    guard let data, data.count > 1_000 else { return }
    for (other, shared) in try await base.readAllDataAndKeys() where shared == data {
      try await base.remove(key: other)
    }
  }
}

/// Releases the old value of a key after a write, even if the new value is the same.
struct ReleasesWhatItKeeps: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    let old = try await base.read(key: key)
    try await base.write(data, key: key)
    if data.count > 4_000, old == data { try await base.remove(key: key) }
  }
}

/// Treats a large value as the stored one if both have the same length, beginning and end.
struct ComparesSamples: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    if data.count > 16_000, let old = try await base.read(key: key), old.count == data.count,
      old.prefix(4_096) == data.prefix(4_096), old.suffix(4_096) == data.suffix(4_096)
    {
      return try await base.write(old, key: key)
    }
    try await base.write(data, key: key)
  }
}

/// Lists the texts that keys were made from.
final class ListsTextsOfKeys: FaultyEngine {
  let base: ReferenceEngine
  private let texts = MutexProtected<[CacheKey: String]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    texts.withLock { $0[key] = key.rawValue }
  }
  func allKeys() async throws -> [CacheKey] {
    let (keys, texts) = (try await base.allKeys(), texts.withLock { $0 })
    return keys.map { key in CacheKey(verbatim: texts[key] ?? key.value) }
  }
}
