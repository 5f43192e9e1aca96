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

    /// What was called.
    public let method: Method
    /// The keys that the call names, in its order, repeats included.
    public let keys: [CacheKey]
    /// The size of the values that the call brings, together. What the body of a transaction writes is not known beforehand, and
    /// not counted.
    public let byteCount: Int

    /// Whether the call may change what is stored: a write, a removal, a batch of them or a transaction.
    public var isWrite: Bool {
      switch method {
      case .write, .writeMany, .writeEntries, .remove, .removeMany, .removeAllData, .apply, .withTransaction:
        true
      default: false
      }
    }

    /// Whether the call asks for something that is stored.
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
