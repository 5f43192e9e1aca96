import Foundation
import StockroomCore

/// One key of a `UserDefaults`.
///
/// On systems other than Apple's, the value is stored in a ``ValueFile``. If the file has no value for the key, the value
/// in the user defaults applies, which was registered or stored by other code.
///
/// `@unchecked Sendable`, since `UserDefaults` is documented to be thread-safe but is not declared `Sendable` on every platform.
struct UserDefaultsEntry: @unchecked Sendable {
  let key: String
  private let storage: UserDefaults
  #if !canImport(Darwin)
    private let file: Result<ValueFile, any Error>
    private let fileKey: CacheKey
  #endif

  init(storage: UserDefaults, key: String) {
    self.storage = storage
    self.key = key
    #if !canImport(Darwin)
      file = Result { try ValueFile.file(of: storage) }
      fileKey = CacheKey(verbatim: key)
    #endif
  }

  /// The content in the file, on systems with a file, or if there is none, the content in the user defaults.
  var content: StoredContent {
    #if !canImport(Darwin)
      do {
        if let bytes = try file.get().value(for: fileKey) { return .bytes(bytes) }
      } catch {
        return .unreadable(StorageError(reading: fileKey, error))
      }
    #endif
    return switch storage.object(forKey: key) {
    case nil: .absent
    case let bytes as Data: .bytes(bytes)
    case let other?:
      .unreadable(
        StorageError(
          .decodingFailed,
          "The user defaults have a \(type(of: other)) instead of Data under \(key.debugDescription)."))
    }
  }

  /// Calls `changed` when another process may have changed the file. Does nothing on Apple's systems.
  func watch(_ changed: @escaping @Sendable () -> Void) {
    #if !canImport(Darwin)
      if case .success(let file) = file { file.watch(changed) }
    #endif
  }

  /// Calls `body` under the lock between processes, on systems with a file. Only one thread at a time may call this.
  func withLock(_ body: () throws -> Void) throws {
    #if canImport(Darwin)
      try body()
    #else
      try file.get().withLock(body)
    #endif
  }

  /// Stores the bytes, or removes the stored ones if they are nil. Call it only within ``withLock(_:)``.
  ///
  /// - Throws: `StorageError` if the file could not be read or written.
  func replace(with bytes: Data?) throws {
    #if canImport(Darwin)
      if let bytes { storage.set(bytes, forKey: key) } else { storage.removeObject(forKey: key) }
    #else
      try file.get().replace(fileKey, with: bytes)
      if bytes == nil { try removeFromDefaults() }
    #endif
  }

  #if !canImport(Darwin)
    /// Removes the value that other code has stored in the user defaults, so that only a registered one applies after a
    /// reset.
    private func removeFromDefaults() throws {
      guard let earlier = storage.object(forKey: key) else { return }
      storage.removeObject(forKey: key)
      if let registered = storage.object(forKey: key),
        ((registered as AnyObject) as? NSObject) == ((earlier as AnyObject) as? NSObject)
      {
        return
      }
      guard storage.synchronize() else {
        throw StorageError(
          .io, "The value of \(key.debugDescription) could not be removed from the user defaults on disk.")
      }
    }
  #endif
}
