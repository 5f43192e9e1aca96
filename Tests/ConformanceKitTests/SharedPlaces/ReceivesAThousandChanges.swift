import FaultyEngineWorker
import Foundation
import StockroomCore

/// Caches values, and invalidates them by a list of the last thousand changes on its place.
final class ReceivesAThousandChanges: FaultyBatchEngine {
  private struct Changes {
    /// The number of the first of the keys.
    var first = 0
    /// Nil stands for all keys.
    var keys: [CacheKey?] = []
  }
  private struct Memory {
    /// The number of the next change to read.
    var next = 0
    var values: [CacheKey: Data] = [:]
  }
  private static let lists = MutexProtected<[String: Changes]>([:])
  let base: ReferenceEngine
  private let place: String
  private let memory = MutexProtected(Memory())
  init(base: ReferenceEngine, place: URL) { (self.base, self.place) = (base, place.path) }

  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(operations)
    report(
      operations.map { operation -> CacheKey? in
        switch operation {
        case .write(_, let key), .remove(let key): key
        case .removeAll: nil
        }
      })
  }
  func removeAllData() async throws {
    try await base.removeAllData()
    report([nil])
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.writeEntries(entries)
    report(entries.map(\.key))
  }
  private func report(_ keys: [CacheKey?]) {
    Self.lists.withLock { [place] all in
      var changes = all[place] ?? Changes()
      changes.keys += keys
      let surplus = max(0, changes.keys.count - 1_000)
      changes.keys.removeFirst(surplus)
      changes.first += surplus
      all[place] = changes
    }
  }

  func read(key: CacheKey) async throws -> Data? {
    let changes = Self.lists.withLock { [place] in $0[place] ?? Changes() }
    let known = memory.withLock { memory -> Data? in
      for changed in changes.keys.dropFirst(max(0, memory.next - changes.first)) {
        if let changed { memory.values[changed] = nil } else { memory.values = [:] }
      }
      memory.next = changes.first + changes.keys.count
      return memory.values[key]
    }
    if let known { return known }
    let value = try await base.read(key: key)
    memory.withLock { $0.values[key] = value }
    return value
  }
}
