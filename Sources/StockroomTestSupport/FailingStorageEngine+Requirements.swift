#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

extension FailingStorageEngine: StorageEngine {
  /// The capabilities of the wrapped engine.
  public var capabilities: EngineCapabilities { base.capabilities }

  /// Recorded, then passed to the wrapped engine.
  public func write(_ data: Data, key: CacheKey) async throws {
    try await pass(Call(.write, [key], byteCount: data.count)) { try await base.write(data, key: key) }
  }

  /// Recorded, then passed to the wrapped engine.
  public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    let byteCount = dataAndKeys.reduce(0) { $0 + $1.data.count }
    try await pass(Call(.writeMany, dataAndKeys.map(\.key), byteCount: byteCount)) {
      try await base.write(dataAndKeys)
    }
  }

  /// Recorded, then passed to the wrapped engine.
  public func read(key: CacheKey) async throws -> Data? {
    try await pass(Call(.read, [key])) { try await base.read(key: key) }
  }

  /// Recorded, then passed to the wrapped engine.
  public func read(keys: [CacheKey]) async throws -> [Data] {
    try await pass(Call(.readMany, keys)) { try await base.read(keys: keys) }
  }

  /// Recorded, then passed to the wrapped engine.
  public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await pass(Call(.readDataAndKeys, keys)) { try await base.readDataAndKeys(keys: keys) }
  }

  /// Recorded, then passed to the wrapped engine.
  public func readAllData() async throws -> [Data] {
    try await pass(Call(.readAllData)) { try await base.readAllData() }
  }

  /// Recorded, then passed to the wrapped engine.
  public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await pass(Call(.readAllDataAndKeys)) { try await base.readAllDataAndKeys() }
  }

  /// Recorded, then passed to the wrapped engine.
  public func remove(key: CacheKey) async throws {
    try await pass(Call(.remove, [key])) { try await base.remove(key: key) }
  }

  /// Recorded, then passed to the wrapped engine.
  public func remove(keys: [CacheKey]) async throws {
    try await pass(Call(.removeMany, keys)) { try await base.remove(keys: keys) }
  }

  /// Recorded, then passed to the wrapped engine.
  public func removeAllData() async throws {
    try await pass(Call(.removeAllData)) { try await base.removeAllData() }
  }

  /// Recorded, then passed to the wrapped engine.
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try await pass(Call(.keyExists, [key])) { try await base.keyExists(key) }
  }

  /// Recorded, then passed to the wrapped engine.
  public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await pass(Call(.keysExist, keys)) { try await base.keysExist(keys) }
  }

  /// Recorded, then passed to the wrapped engine.
  public func keyCount() async throws -> Int {
    try await pass(Call(.keyCount)) { try await base.keyCount() }
  }

  /// Recorded, then passed to the wrapped engine.
  public func allKeys() async throws -> [CacheKey] {
    try await pass(Call(.allKeys)) { try await base.allKeys() }
  }

  /// Recorded, then passed to the wrapped engine.
  public func createdAt(key: CacheKey) async throws -> Date? {
    try await pass(Call(.createdAt, [key])) { try await base.createdAt(key: key) }
  }

  /// Recorded, then passed to the wrapped engine.
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try await pass(Call(.updatedAt, [key])) { try await base.updatedAt(key: key) }
  }

  /// Recorded, then passed to the wrapped engine.
  public func readAllEntries() async throws -> [StorageEntry] {
    try await pass(Call(.readAllEntries)) { try await base.readAllEntries() }
  }

  /// Recorded, then passed to the wrapped engine.
  public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await pass(Call(.readEntries, keys)) { try await base.readEntries(keys: keys) }
  }

  /// Recorded, then passed to the wrapped engine.
  public func writeEntries(_ entries: [StorageEntry]) async throws {
    let byteCount = entries.reduce(0) { $0 + $1.data.count }
    try await pass(Call(.writeEntries, entries.map(\.key), byteCount: byteCount)) {
      try await base.writeEntries(entries)
    }
  }

  /// Recorded, then passed to the wrapped engine.
  public func apply(_ operations: [StorageOperation]) async throws {
    var keys: [CacheKey] = []
    var byteCount = 0
    for operation in operations {
      switch operation {
      case .write(let data, let key):
        keys.append(key)
        byteCount += data.count
      case .remove(let key): keys.append(key)
      case .removeAll: break
      }
    }
    try await pass(Call(.apply, keys, byteCount: byteCount)) { try await base.apply(operations) }
  }

  /// Recorded, then passed to the wrapped engine.
  public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await pass(Call(.scan)) { try await base.scan(range, limit: limit) }
  }

  /// Recorded, then passed to the wrapped engine. A call that fails beforehand does not run the body; one
  /// that fails afterwards has committed it.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await pass(Call(.withTransaction)) { try await base.withTransaction(body) }
  }

  /// Recorded, then passed to the wrapped engine. Counts neither as a read nor as a write. A call that fails
  /// afterwards drops the stream. The elements of the stream are not recorded.
  public func changes() async throws -> StorageChanges {
    try await pass(Call(.changes)) { try await base.changes() }
  }

  /// Recorded, then passed to the wrapped engine.
  public func verify() async throws {
    try await pass(Call(.verify)) { try await base.verify() }
  }

  /// Recorded, then passed to the wrapped engine.
  public func close() async throws {
    try await pass(Call(.close)) { try await base.close() }
  }
}
