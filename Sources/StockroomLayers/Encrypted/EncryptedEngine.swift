#if canImport(CryptoKit) || Encryption
  public import StockroomCore

  #if canImport(FoundationEssentials)
    public import FoundationEssentials
  #else
    public import Foundation
  #endif

  /// Stores values encrypted. ``StockroomCore/StorageEngine/encrypted(with:)`` returns it.
  ///
  /// Uses AES-256-GCM and also authenticates the entry's key: reading a value that was changed, or moved to another key, throws.
  /// Each value takes 74 more bytes, plus the length of the encryption key's name. See <doc:EncryptingValues> for what this
  /// protects, and what it does not.
  ///
  /// With the wrong encryption key, every call that decrypts a value throws `permissionDenied`. Keys, timestamps, order and all
  /// capabilities are unchanged.
  public struct EncryptedEngine<Base: StorageEngine>: ValueLayer {
    /// The engine that keeps the encrypted values.
    public let base: Base
    private let cipher: ValueCipher

    init(base: Base, cipher: ValueCipher) { (self.base, self.cipher) = (base, cipher) }

    /// Encrypts the value.
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

    /// Decrypts a stored value.
    ///
    /// - Throws: `StorageError` with code `corrupted` if this layer has not stored the value under this key, or the value has been
    ///   changed; `permissionDenied` if the encryption key that the value names is not in the keyring, or is not the one that
    ///   encrypted it.
    public func decode(_ stored: Data, key: CacheKey) throws -> Data {
      try cipher.decrypt(stored, key: key)
    }

    /// Encrypts each value that is encrypted with another key again, with the keyring's current key.
    ///
    /// Every other process that writes to the place must have a keyring with the same current key before this is called: the keys
    /// of the entries are listed once, and entries that are written with an old key afterwards stay as they are. Once a call has
    /// returned that began after all processes had such a keyring, the old keys can be removed from all keyrings.
    ///
    /// Other calls can run at the same time: entries are rewritten in transactions of at most 128 entries and about 4 MiB, and
    /// concurrent writes are not overwritten. The task may be cancelled; the next call rewrites the remaining entries. In the
    /// change feed and in `updatedAt(key:)`, a rewritten value is a change. Reads every value, writes each rewritten one, and keeps
    /// all keys in memory. Values that name the current key are neither rewritten nor decrypted: to check those, call `verify()`.
    ///
    /// - Parameter progress: Called after each transaction with the number of entries that have been checked, and the number of all
    ///   entries.
    /// - Returns: The number of values that were rewritten.
    /// - Throws: `StorageError` with code `unsupported` if the engine below has no transactions, or if its entries expire: their
    ///   lifetimes would start again, so use `expiring(after:clock:)` in front of this layer. With code `corrupted`,
    ///   `permissionDenied` or `unsupported` if a value could not be read, or could not be decrypted with its old key: such values
    ///   stay as they are, and the error of the first one is thrown after all other values have been rewritten. Otherwise as a read
    ///   and a write.
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
          "In front of a layer whose entries expire, values cannot be encrypted again: their lifetimes would start again."
        )
      }
      let keys = try await allKeys()
      var sum = Reencryption()
      while sum.done < keys.count {
        try Task.checkCancellation()
        // Limited, since other writers wait while a transaction runs.
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

    /// Rewrites the first of the entries, as many as belong in one transaction.
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

  /// The result of encrypting some entries again.
  private struct Reencryption {
    var done = 0
    var rewritten = 0
    /// The error of the first value that could not be read or decrypted.
    var failure: StorageError?
  }

  extension StorageEngine {
    /// This engine, with values stored encrypted. See ``EncryptedEngine``.
    ///
    /// Costs processor time proportional to the size of the value: <doc:OrderingLayers> has measurements.
    public func encrypted(with keyring: Keyring) -> EncryptedEngine<Self> {
      EncryptedEngine(base: self, cipher: ValueCipher(keyring: keyring))
    }

    /// This engine, with values stored encrypted, and the names of entries hidden. See ``EncryptedEngine`` and
    /// ``HiddenKeysEngine``.
    ///
    /// - Parameters:
    ///   - keyring: Encrypts the values.
    ///   - namesKey: Hides the keys of the entries. It must be the same as long as the place exists: with another one, no entry is
    ///     found under its key, and reading all entries throws `corrupted`.
    public func encrypted(
      with keyring: Keyring, hidingKeysWith namesKey: EncryptionKey
    ) -> HiddenKeysEngine<EncryptedEngine<Self>> {
      HiddenKeysEngine(base: encrypted(with: keyring), secret: namesKey)
    }
  }
#endif
