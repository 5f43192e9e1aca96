import Foundation
import StockroomCore
import Synchronization

/// A dictionary behind a mutex.
final class DictionaryPeer: PlainValues {
  private let values = Mutex<[CacheKey: Data]>([:])

  var capabilities: EngineCapabilities { [.atomicBatches, .snapshotReads] }

  func write(_ data: Data, key: CacheKey) async throws { values.withLock { $0[key] = data } }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    values.withLock { values in
      for (key, data) in dataAndKeys { values[key] = data }
    }
  }

  func read(key: CacheKey) async throws -> Data? { values.withLock { $0[key] } }

  func read(keys: [CacheKey]) async throws -> [Data] {
    values.withLock { values in keys.compactMap { values[$0] } }
  }

  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    values.withLock { values in keys.compactMap { key in values[key].map { (key, $0) } } }
  }

  func readAllData() async throws -> [Data] { values.withLock { Array($0.values) } }

  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    values.withLock { values in values.map { ($0.key, $0.value) } }
  }

  func remove(key: CacheKey) async throws { values.withLock { _ = $0.removeValue(forKey: key) } }

  func remove(keys: [CacheKey]) async throws {
    values.withLock { values in
      for key in keys { values.removeValue(forKey: key) }
    }
  }

  func removeAllData() async throws { values.withLock { $0 = [:] } }

  func keyCount() async throws -> Int { values.withLock { $0.count } }

  func allKeys() async throws -> [CacheKey] { values.withLock { Array($0.keys) } }
}
