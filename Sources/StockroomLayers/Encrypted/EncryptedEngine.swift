#if canImport(CryptoKit) || Encryption
  public import StockroomCore

  #if canImport(FoundationEssentials)
    public import FoundationEssentials
  #else
    public import Foundation
  #endif

  /// Stores values encrypted. ``StockroomCore/StorageEngine/encrypted(with:)`` returns it.
  ///
  /// Uses AES-256-GCM and also authenticates the entry's key: reading a value that was changed, or moved to another key, throws. Each value
  /// takes 74 more bytes, and those of the encryption key's name. See <doc:EncryptingValues> for what this protects, and what it does not.
  ///
  /// With the wrong key, every call that reads or decrypts a value throws `permissionDenied`. Keys, timestamps, order and all
  /// capabilities are unchanged.
  public struct EncryptedEngine<Base: StorageEngine>: ValueLayer {
    /// The engine that keeps the encrypted values.
    public let base: Base
    private let cipher: ValueCipher

    init(base: Base, cipher: ValueCipher) { (self.base, self.cipher) = (base, cipher) }

    /// The value as it is stored.
    ///
    /// - Throws: `StorageError` with code `io` if the system cannot encrypt.
    public func encode(_ value: Data, key: CacheKey) throws -> Data {
      do {
        return try cipher.encrypt(value, key: key)
      } catch let error as StorageError {
        throw error
      } catch {
        throw StorageError(.io, "The value of \(key) cannot be encrypted.", underlying: error)
      }
    }

    /// The value that was stored.
    ///
    /// - Throws: `StorageError` with code `corrupted` if this layer has not stored it under this key, or somebody has changed it, and
    ///   `permissionDenied` if the encryption key that it names is not in the keyring, or is not the one that it was encrypted with.
    public func decode(_ stored: Data, key: CacheKey) throws -> Data {
      try cipher.decrypt(stored, key: key)
    }

    /// Encrypts with the keyring's current key each value that is encrypted with another key.
    ///
    /// Every other process that writes to the place must have a keyring with the same current key before this is called: the keys of the
    /// entries are listed once, and entries that are written with an old key afterwards stay as they are. The old keys can be removed from
    /// all keyrings once a call has returned that began after that.
    ///
    /// Other calls can run at the same time: entries are rewritten in transactions of at most 128 entries and about 4 MiB, and concurrent
    /// writes are not overwritten. The task may be cancelled; the next call continues. For the feed and `updatedAt(key:)`, a rewritten
    /// value is a change. Costs a read of every value and a write of each rewritten one, and keeps all keys in memory. Values that name the
    /// current key are neither rewritten nor decrypted: use `verify()` for that.
    ///
    /// - Parameter progress: Called with the number of entries that have been checked, and the number of all entries.
    /// - Returns: The number of values that were rewritten.
    /// - Throws: `StorageError` with code `unsupported` if the engine below has no transactions, or if its entries expire, whose lifetimes
    ///   would start again: use `expiring(after:clock:)` in front of this one; with code `corrupted`, `permissionDenied` or `unsupported`,
    ///   after all other values have been rewritten, if a value cannot be read, or with an old key not be decrypted, which then stays as it
    ///   is; otherwise as a read and a write.
    @concurrent @discardableResult
    public func reencrypt(
      progress: (@Sendable (_ done: Int, _ total: Int) -> Void)? = nil
    ) async throws -> Int {
      guard capabilities.contains(.transactions) else {
        throw StorageError(
          .unsupported, "Encrypting values again needs transactions, which a \(Base.self) does not have.")
      }
      guard !expires(base) else {
        throw StorageError(
          .unsupported,
          "In front of a layer whose entries expire no value is encrypted again, since it would live longer by that."
        )
      }
      let keys = try await allKeys()
      var sum = Reencryption()
      while sum.done < keys.count {
        try Task.checkCancellation()
        // Other writers wait for each transaction.
        let rest = keys[sum.done...].prefix(128)
        let part = try await base.withTransaction { try reencrypt(rest, in: $0) }
        sum.done += part.done
        sum.rewritten += part.rewritten
        sum.failure = sum.failure ?? part.failure
        progress?(sum.done, keys.count)
      }
      if let failure = sum.failure { throw failure }
      return sum.rewritten
    }

    /// As many of the entries as make a transaction.
    private func reencrypt(
      _ keys: ArraySlice<CacheKey>, in transaction: any StorageTransaction
    ) throws -> Reencryption {
      var (part, bytes) = (Reencryption(), 0)
      for key in keys where bytes < 4 << 20 {
        part.done += 1
        let value: Data
        do {
          guard let stored = try transaction.read(key: key) else { continue }
          bytes += stored.count
          if try cipher.isCurrent(stored, key: key) { continue }
          value = try naming(place) { try decode(stored, key: key) }
        } catch let error as StorageError where error.isOfOneEntry {
          part.failure = part.failure ?? error
          continue
        }
        try transaction.write(encode(value, key: key), key: key)
        part.rewritten += 1
      }
      return part
    }
  }

  /// What has become of some entries that were to be encrypted again.
  private struct Reencryption {
    var done = 0
    var rewritten = 0
    /// What is wrong with the first value that cannot be decrypted.
    var failure: StorageError?
  }

  extension StorageEngine {
    /// This engine, with values stored encrypted. See ``EncryptedEngine``.
    ///
    /// Costs processor time in proportion to the value: <doc:EncryptingValues> has figures.
    public func encrypted(with keyring: Keyring) -> EncryptedEngine<Self> {
      EncryptedEngine(base: self, cipher: ValueCipher(keyring: keyring))
    }

    /// This engine, with values stored encrypted, and the names of entries hidden. See ``EncryptedEngine`` and ``HiddenKeysEngine``.
    ///
    /// - Parameters:
    ///   - keyring: Encrypts the values.
    ///   - namesKey: Hides the keys of the entries, and has to be the same as long as the place exists: another one finds none of them.
    public func encrypted(
      with keyring: Keyring, hidingKeysWith namesKey: EncryptionKey
    ) -> HiddenKeysEngine<EncryptedEngine<Self>> {
      HiddenKeysEngine(base: encrypted(with: keyring), secret: namesKey)
    }
  }
#endif
