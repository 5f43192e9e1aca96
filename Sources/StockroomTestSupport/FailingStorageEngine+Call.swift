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
      case readEntries = "readEntries(keys:)"
      case writeEntries = "writeEntries(_:)"
      case apply = "apply(_:)"
      case scan = "scan(_:limit:)"
      case withTransaction = "withTransaction(_:)"
      case changes = "changes()"
      case verify = "verify()"
      case close = "close()"
    }

    /// The method that was called.
    public let method: Method
    /// The keys in the arguments of the call, in order, including repeats.
    public let keys: [CacheKey]
    /// The total size of the values in the arguments of the call. Values that the body of a transaction
    /// writes are not counted, because they are not known beforehand.
    public let byteCount: Int

    /// Whether the call may change stored data: a write, a removal, a batch of them or a transaction.
    public var isWrite: Bool {
      switch method {
      case .write, .writeMany, .writeEntries, .remove, .removeMany, .removeAllData, .apply, .withTransaction:
        true
      default: false
      }
    }

    /// Whether the call reads stored data.
    public var isRead: Bool { !isWrite && method != .changes && method != .close }

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
