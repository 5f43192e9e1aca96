#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

extension FailingStorageEngine {
  /// A call that has reached the engine.
  public struct Call: Sendable, Hashable {
    /// A requirement of `StorageEngine`. The raw value is its name.
    public enum Method: String, Sendable, CaseIterable {
      case write = "write(_:key:)"
      case writeMany = "write(_:)"
      case read = "read(key:)"
      case readMany = "read(keys:)"
      case readDataAndKeys = "readDataAndKeys(keys:)"
      case readAllData = "readAllData()"
      case readAllDataAndKeys = "readAllDataAndKeys()"
      case remove = "remove(key:)"
      case removeMany = "remove(keys:)"
      case removeAllData = "removeAllData()"
      case keyExists = "keyExists(_:)"
      case keysExist = "keysExist(_:)"
      case keyCount = "keyCount()"
      case allKeys = "allKeys()"
      case createdAt = "createdAt(key:)"
      case updatedAt = "updatedAt(key:)"
      case readAllEntries = "readAllEntries()"
      case apply = "apply(_:)"
      case scan = "scan(_:limit:)"
      case close = "close()"
    }

    /// What was called.
    public let method: Method
    /// The keys that the call names, in its order, repeats included.
    public let keys: [CacheKey]
    /// The size of the values that the call brings, together.
    public let byteCount: Int

    /// Whether the call may change what is stored: a write, a removal or a batch of them.
    public var isWrite: Bool {
      switch method {
      case .write, .writeMany, .remove, .removeMany, .removeAllData, .apply: true
      default: false
      }
    }

    /// Whether the call asks for something that is stored.
    public var isRead: Bool { !isWrite && method != .close }

    init(_ method: Method, _ keys: [CacheKey] = [], byteCount: Int = 0) {
      self.method = method
      self.keys = keys
      self.byteCount = byteCount
    }
  }
}

extension FailingStorageEngine.Call: CustomStringConvertible {
  /// The name of the method and the number of keys.
  public var description: String { keys.isEmpty ? method.rawValue : "\(method.rawValue) of \(keys.count)" }
}

extension FailingStorageEngine: StorageEngine {
  /// Those of the engine underneath.
  public var capabilities: EngineCapabilities { base.capabilities }

  public func write(_ data: Data, key: CacheKey) async throws {
    try await pass(Call(.write, [key], byteCount: data.count)) { try await base.write(data, key: key) }
  }

  public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    let byteCount = dataAndKeys.reduce(0) { $0 + $1.data.count }
    try await pass(Call(.writeMany, dataAndKeys.map(\.key), byteCount: byteCount)) {
      try await base.write(dataAndKeys)
    }
  }

  public func read(key: CacheKey) async throws -> Data? {
    try await pass(Call(.read, [key])) { try await base.read(key: key) }
  }

  public func read(keys: [CacheKey]) async throws -> [Data] {
    try await pass(Call(.readMany, keys)) { try await base.read(keys: keys) }
  }

  public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await pass(Call(.readDataAndKeys, keys)) { try await base.readDataAndKeys(keys: keys) }
  }

  public func readAllData() async throws -> [Data] {
    try await pass(Call(.readAllData)) { try await base.readAllData() }
  }

  public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await pass(Call(.readAllDataAndKeys)) { try await base.readAllDataAndKeys() }
  }

  public func remove(key: CacheKey) async throws {
    try await pass(Call(.remove, [key])) { try await base.remove(key: key) }
  }

  public func remove(keys: [CacheKey]) async throws {
    try await pass(Call(.removeMany, keys)) { try await base.remove(keys: keys) }
  }

  public func removeAllData() async throws {
    try await pass(Call(.removeAllData)) { try await base.removeAllData() }
  }

  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try await pass(Call(.keyExists, [key])) { try await base.keyExists(key) }
  }

  public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await pass(Call(.keysExist, keys)) { try await base.keysExist(keys) }
  }

  public func keyCount() async throws -> Int {
    try await pass(Call(.keyCount)) { try await base.keyCount() }
  }

  public func allKeys() async throws -> [CacheKey] {
    try await pass(Call(.allKeys)) { try await base.allKeys() }
  }

  public func createdAt(key: CacheKey) async throws -> Date? {
    try await pass(Call(.createdAt, [key])) { try await base.createdAt(key: key) }
  }

  public func updatedAt(key: CacheKey) async throws -> Date? {
    try await pass(Call(.updatedAt, [key])) { try await base.updatedAt(key: key) }
  }

  public func readAllEntries() async throws -> [StorageEntry] {
    try await pass(Call(.readAllEntries)) { try await base.readAllEntries() }
  }

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

  public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await pass(Call(.scan)) { try await base.scan(range, limit: limit) }
  }

  public func close() async throws {
    try await pass(Call(.close)) { try await base.close() }
  }
}
