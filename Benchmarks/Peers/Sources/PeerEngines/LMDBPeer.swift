import Foundation
import StockroomCore
import Synchronization

/// LMDB through its C interface: one environment, one read transaction that is renewed for each call.
final class LMDBPeer: PlainValues {
  private let environment: Mutex<LMDBEnvironment?>

  init(directory: URL, durability: Durability) throws {
    let path = directory.path(percentEncoded: false)
    environment = Mutex(try LMDBEnvironment(path: path, durability: durability))
  }

  var capabilities: EngineCapabilities {
    [.persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .transactions]
  }

  func close() async throws { environment.withLock { $0 = nil } }

  private func locked<Result: Sendable>(_ body: (LMDBEnvironment) throws -> Result) throws -> Result {
    try environment.withLock { environment in
      guard let environment else { throw StorageError(.closed, "The environment is closed.") }
      return try body(environment)
    }
  }

  func write(_ data: Data, key: CacheKey) async throws {
    try locked { environment in
      try environment.writing { try environment.put(data, key, in: $0) }
    }
  }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try locked { environment in
      try environment.writing { transaction in
        for (key, data) in dataAndKeys { try environment.put(data, key, in: transaction) }
      }
    }
  }

  func read(key: CacheKey) async throws -> Data? {
    try locked { environment in try environment.reading { try environment.get(key) } }
  }

  func read(keys: [CacheKey]) async throws -> [Data] {
    try locked { environment in
      try environment.reading { try keys.compactMap { try environment.get($0) } }
    }
  }

  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try locked { environment in
      try environment.reading { try keys.compactMap { key in try environment.get(key).map { (key, $0) } } }
    }
  }

  func readAllData() async throws -> [Data] { try readAll { _, data in data() } }

  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try readAll { key, data in (CacheKey(bytes: key), data()) }
  }

  func allKeys() async throws -> [CacheKey] { try readAll { key, _ in CacheKey(bytes: key) } }

  private func readAll<Element: Sendable>(
    _ element: (UnsafeRawBufferPointer, () -> Data) -> Element
  ) throws -> [Element] {
    try locked { environment in
      try environment.reading {
        var elements: [Element] = []
        elements.reserveCapacity(try environment.count())
        try environment.forEach(from: []) { key, value in
          elements.append(element(key) { value.data })
          return true
        }
        return elements
      }
    }
  }

  func remove(key: CacheKey) async throws {
    try locked { environment in try environment.writing { try environment.delete(key, in: $0) } }
  }

  func remove(keys: [CacheKey]) async throws {
    try locked { environment in
      try environment.writing { transaction in
        for key in keys { try environment.delete(key, in: transaction) }
      }
    }
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try locked { environment in
      try environment.writing { transaction in
        try body(
          PeerTransaction(
            get: { try environment.get($0, in: transaction) },
            put: { try environment.put($0, $1, in: transaction) },
            delete: { try environment.delete($0, in: transaction) }))
      }
    }
  }

  func removeAllData() async throws {
    try locked { environment in try environment.writing { try environment.deleteAll(in: $0) } }
  }

  func keyCount() async throws -> Int {
    try locked { environment in try environment.reading { try environment.count() } }
  }

  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let bounds = ScanBounds(range, limit: limit)
    return try locked { environment in
      var found: [(key: CacheKey, data: Data)] = []
      if bounds.limit == 0 { return found }
      try environment.reading {
        try environment.forEach(from: bounds.start) { key, value in
          switch bounds.position(of: key) {
          case .before: return true
          case .behind: return false
          case .inside:
            found.append((CacheKey(bytes: key), value.data))
            return found.count < bounds.limit
          }
        }
      }
      return found
    }
  }
}
