import Foundation
import StockroomCore

/// One key of a `UserDefaults`.
///
/// Off Apple's systems what is stored is in a ``ValueFile``, and the user defaults themselves have only what takes its
/// place as long as there is nothing: what was registered, or stored by other code.
///
/// Unchecked, since `UserDefaults` is documented to be thread-safe and not declared to be on every platform.
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

  /// What is stored, and if nothing is, what is registered.
  var content: StoredContent {
    #if !canImport(Darwin)
      do {
        if let bytes = try file.get().value(for: fileKey) { return .bytes(bytes) }
      } catch {
        return .unreadable(StorageError(whyUnknown: fileKey, error))
      }
    #endif
    return switch storage.object(forKey: key) {
    case nil: .absent
    case let bytes as Data: .bytes(bytes)
    case let other?:
      .unreadable(
        StorageError(
          .decodingFailed,
          "There is a \(type(of: other)) under \(key.debugDescription) in the user defaults, and no Data."))
    }
  }

  /// Calls `changed` when another process may have changed what is stored, where there is a way to hear of that.
  func watch(_ changed: @escaping @Sendable () -> Void) {
    #if !canImport(Darwin)
      if case .success(let file) = file { file.watch(changed) }
    #endif
  }

  /// Calls `body` while no other process changes what is stored, where that can be had. Only one thread at a time may
  /// call this.
  func withLock(_ body: () throws -> Void) throws {
    #if canImport(Darwin)
      try body()
    #else
      try file.get().withLock(body)
    #endif
  }

  /// Stores the bytes, or nothing if they are nil. Only within ``withLock(_:)``.
  ///
  /// - Throws: `StorageError` if they could not be put on disk.
  func replace(with bytes: Data?) throws {
    #if canImport(Darwin)
      if let bytes { storage.set(bytes, forKey: key) } else { storage.removeObject(forKey: key) }
    #else
      try file.get().replace(fileKey, with: bytes)
      if bytes == nil { try removeFromDefaults() }
    #endif
  }

  #if !canImport(Darwin)
    /// Removes what other code has stored in the user defaults themselves, so that nothing but what is registered takes
    /// the place of a value that is reset.
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
