#if canImport(CryptoKit) || Encryption
  #if canImport(CryptoKit)
    import CryptoKit
  #else
    import Crypto
  #endif
  import StockroomCore

  #if canImport(FoundationEssentials)
    import FoundationEssentials
  #else
    import Foundation
  #endif

  /// The keys of an encrypted place: one to write with, and those that were used before.
  ///
  /// To rotate a key, create a new one and make it the current one. From then on, new values are encrypted with it, and existing
  /// values are decrypted with the old key until ``EncryptedEngine/reencrypt(progress:)`` has rewritten them.
  public struct Keyring: Sendable {
    /// The name of the key that encrypts new values.
    public let current: String
    private let wrapping: [String: SymmetricKey]

    /// Creates a keyring.
    ///
    /// - Parameters:
    ///   - current: The key that encrypts everything that is written. It also decrypts.
    ///   - previous: Earlier keys, which only decrypt the values that were encrypted with them.
    /// - Throws: `StorageError` with code `unsupported` if two keys have the same name.
    public init(_ current: EncryptionKey, previous: [EncryptionKey] = []) throws {
      var wrapping: [String: SymmetricKey] = [:]
      for key in [current] + previous {
        guard wrapping.updateValue(key.derived(for: "keys of values"), forKey: key.identifier) == nil else {
          throw StorageError(
            .unsupported,
            "A keyring has two encryption keys with the name \(key.identifier.debugDescription).")
        }
      }
      self.current = current.identifier
      self.wrapping = wrapping
    }

    /// Wraps a data key with the current key (RFC 3394), for storing it.
    func wrap(_ dataKey: SymmetricKey) throws -> Data {
      try AES.KeyWrap.wrap(dataKey, using: key(current))
    }

    /// Unwraps a data key that was wrapped with the key of this name.
    ///
    /// - Throws: `StorageError` with code `permissionDenied` if the keyring has no key of this name, or another key of the same
    ///   name.
    func unwrap(_ wrapped: Data, withKey identifier: String) throws -> SymmetricKey {
      let key = try key(identifier)
      do {
        return try AES.KeyWrap.unwrap(wrapped, using: key)
      } catch {
        throw StorageError(
          .permissionDenied,
          "The encryption key \(identifier.debugDescription) is not the one with which a value was encrypted.",
          underlying: error)
      }
    }

    private func key(_ identifier: String) throws -> SymmetricKey {
      guard let key = wrapping[identifier] else {
        throw StorageError(
          .permissionDenied,
          "A value was encrypted with the key \(identifier.debugDescription), which is not in the keyring.")
      }
      return key
    }
  }
#endif
