import Foundation
import PeerLevelDB
import StockroomCore
import Synchronization

/// LevelDB through its C interface.
final class LevelDBPeer: PlainValues {
  private let opened: Mutex<LevelDBDatabase?>
  /// LevelDB has no transactions: they run one at a time, and each writes its changes as one batch at its end.
  private let transactions = Mutex<Void>(())

  init(directory: URL, durability: Durability) throws {
    let path = directory.path(percentEncoded: false)
    opened = Mutex(try LevelDBDatabase(path: path, durability: durability))
  }

  var capabilities: EngineCapabilities {
    [.persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .transactions]
  }

  /// The database is closed when the last call in progress has ended.
  func close() async throws { opened.withLock { $0 = nil } }

  private var database: LevelDBDatabase {
    get throws {
      guard let database = opened.withLock({ $0 }) else {
        throw StorageError(.closed, "The database is closed.")
      }
      return database
    }
  }

  func write(_ data: Data, key: CacheKey) async throws { try database.put(data, key) }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try database.writeBatch { batch in
      for (key, data) in dataAndKeys {
        key.withBytes { key in
          data.withUnsafeBytes { data in
            leveldb_writebatch_put(batch, key.characters, key.count, data.characters, data.count)
          }
        }
      }
    }
  }

  func read(key: CacheKey) async throws -> Data? { try database.get(key) }

  func read(keys: [CacheKey]) async throws -> [Data] {
    let database = try database
    return try database.withSnapshot { snapshot in
      try keys.compactMap { try database.get($0, snapshot: snapshot) }
    }
  }

  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    let database = try database
    return try database.withSnapshot { snapshot in
      try keys.compactMap { key in try database.get(key, snapshot: snapshot).map { (key, $0) } }
    }
  }

  func readAllData() async throws -> [Data] { try readAll { _, value in Data(value) } }

  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try readAll { key, value in (CacheKey(bytes: key), Data(value)) }
  }

  func allKeys() async throws -> [CacheKey] { try readAll { key, _ in CacheKey(bytes: key) } }

  private func readAll<Element>(
    _ element: (UnsafeRawBufferPointer, UnsafeRawBufferPointer) -> Element
  ) throws -> [Element] {
    var elements: [Element] = []
    try database.forEach { key, value in
      elements.append(element(key, value))
      return true
    }
    return elements
  }

  func remove(key: CacheKey) async throws { try database.delete(key) }

  func remove(keys: [CacheKey]) async throws {
    try database.writeBatch { batch in
      for key in keys { key.withBytes { leveldb_writebatch_delete(batch, $0.characters, $0.count) } }
    }
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let database = try database
    return try transactions.withLock { _ in
      var written: [CacheKey: Data?] = [:]
      let transaction = PeerTransaction(
        get: { key in try written[key] ?? database.get(key) },
        put: { data, key in written[key] = data },
        delete: { key in written[key] = .some(nil) })
      let result = try body(transaction)
      try database.writeBatch { batch in
        for (key, data) in written {
          key.withBytes { key in
            guard let data else { return leveldb_writebatch_delete(batch, key.characters, key.count) }
            data.withUnsafeBytes { data in
              leveldb_writebatch_put(batch, key.characters, key.count, data.characters, data.count)
            }
          }
        }
      }
      return result
    }
  }

  /// LevelDB has no call that removes a range of keys.
  func removeAllData() async throws {
    let database = try database
    try database.writeBatch { batch in
      try database.forEach { key, _ in
        leveldb_writebatch_delete(batch, key.characters, key.count)
        return true
      }
    }
  }

  /// LevelDB does not count its entries.
  func keyCount() async throws -> Int {
    var count = 0
    try database.forEach { _, _ in
      count += 1
      return true
    }
    return count
  }

  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let bounds = ScanBounds(range, limit: limit)
    var found: [(key: CacheKey, data: Data)] = []
    if bounds.limit == 0 { return found }
    try database.forEach(from: bounds.start, fillingCache: true) { key, value in
      switch bounds.position(of: key) {
      case .before: return true
      case .behind: return false
      case .inside:
        found.append((CacheKey(bytes: key), Data(value)))
        return found.count < bounds.limit
      }
    }
    return found
  }
}
