import Foundation
import StockroomCore

/// One key of a `UserDefaults`.
///
/// Unchecked, since `UserDefaults` is documented to be thread-safe and not declared to be on every platform.
struct UserDefaultsEntry: @unchecked Sendable {
  let storage: UserDefaults
  let key: String

  var content: StoredContent {
    switch storage.object(forKey: key) {
    case nil: .absent
    case let bytes as Data: .bytes(bytes)
    case let other?:
      .unreadable(
        StorageError(
          .decodingFailed,
          "There is a \(type(of: other)) under \(key.debugDescription) in the user defaults, and no Data."))
    }
  }

  /// Stores the bytes, or nothing if they are nil.
  ///
  /// - Throws: `StorageError` with code `io` if they could not be put on disk; what was there is there again.
  func replace(with bytes: Data?) throws {
    #if canImport(Darwin)
      put(bytes)
    #else
      // Here nothing reaches the disk unless it is asked for, and the process may end without another chance.
      let earlier = storage.object(forKey: key)
      put(bytes)
      guard storage.synchronize() else {
        put(earlier)
        throw StorageError(
          .io, "The user defaults could not be written to disk with a new value for \(key.debugDescription).")
      }
    #endif
  }

  private func put(_ value: Any?) {
    if let value { storage.set(value, forKey: key) } else { storage.removeObject(forKey: key) }
  }
}
