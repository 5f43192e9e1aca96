import FaultyEngineWorker
import Foundation
import StockroomCore

/// Caches values, with the number of times that the entry has been written since it became present.
final class ComparesVersions: FaultyBatchEngine {
  private static let versions = MutexProtected<[String: [CacheKey: Int]]>([:])
  let base: ReferenceEngine
  private let place: String
  private let known = MutexProtected<[CacheKey: (version: Int, data: Data)]>([:])
  init(base: ReferenceEngine, place: URL) { (self.base, self.place) = (base, place.path) }

  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    changed { versions in
      for operation in operations {
        switch operation {
        case .write(_, let key): versions[key, default: 0] += 1
        case .remove(let key): versions[key] = nil
        case .removeAll: versions = [:]
        }
      }
    }
  }
  func removeAllData() async throws {
    try await base.removeAllData()
    changed { $0 = [:] }
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.writeEntries(entries)
    changed { versions in
      for entry in entries { versions[entry.key, default: 0] += 1 }
    }
  }
  private func changed(_ change: (inout [CacheKey: Int]) -> Void) {
    // It does not need to compare anything after its own changes.
    known.withLock { $0 = [:] }
    Self.versions.withLock { [place] in change(&$0[place, default: [:]]) }
  }

  func read(key: CacheKey) async throws -> Data? {
    let version = Self.versions.withLock { [place] in $0[place]?[key] ?? 0 }
    if let cached = known.withLock({ $0[key] }), cached.version == version { return cached.data }
    let data = try await base.read(key: key)
    known.withLock { $0[key] = data.map { (version: version, data: $0) } }
    return data
  }
}
