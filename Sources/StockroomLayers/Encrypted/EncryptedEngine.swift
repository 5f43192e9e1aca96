#if canImport(CryptoKit) || Encryption
  public import StockroomCore

  #if canImport(FoundationEssentials)
    public import FoundationEssentials
  #else
    public import Foundation
  #endif

  /// Stores values encrypted: what ``StockroomCore/StorageEngine/encrypted(with:)`` returns.
  ///
  /// AES-256-GCM, with the entry's key authenticated too: a value that somebody has changed, or put under another key, is `corrupted`.
  /// Each value takes 74 bytes more than before, and the name of the key. See <doc:EncryptingValues> for what this protects, and what
  /// it does not.
  ///
  /// With the wrong key `permissionDenied` is thrown by every call that reads or decrypts a value. Keys, timestamps and order stay as
  /// they are, and so do all capabilities.
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
    ///   `permissionDenied` if the key that it was encrypted with is not in the keyring.
    public func decode(_ stored: Data, key: CacheKey) throws -> Data {
      try cipher.decrypt(stored, key: key)
    }

    /// Encrypts again, with the keyring's current key, each value that another key has encrypted. The others can be taken out of the
    /// keyring afterwards.
    ///
    /// Runs beside everything else: entries are rewritten in transactions of 4 MiB or some more, and what others write meanwhile is
    /// not touched. The task may be cancelled, and the next call goes on where this one was. To the feed, and to `updatedAt(key:)`, a
    /// value that is rewritten is a change. Costs a read of every value and a write of those that are rewritten.
    ///
    /// - Parameter progress: Called with the number of entries that were looked at, and how many there are.
    /// - Returns: The number of values that were rewritten.
    /// - Throws: `StorageError` with code `unsupported` if the engine below has no transactions; otherwise as a read and a write.
    @concurrent @discardableResult
    public func reencrypt(
      progress: (@Sendable (_ done: Int, _ total: Int) -> Void)? = nil
    ) async throws -> Int {
      guard capabilities.contains(.transactions) else {
        throw StorageError(
          .unsupported, "A \(Base.self) has no transactions, without which no value is encrypted again.")
      }
      let keys = try await allKeys()
      var (done, rewritten) = (0, 0)
      while done < keys.count {
        try Task.checkCancellation()
        let rest = keys[done...].prefix(1_000)
        let result = try await base.withTransaction { try reencrypt(rest, in: $0) }
        done += result.done
        rewritten += result.rewritten
        progress?(done, keys.count)
      }
      return rewritten
    }

    /// As many of the entries as make a transaction.
    private func reencrypt(
      _ keys: ArraySlice<CacheKey>, in transaction: any StorageTransaction
    ) throws -> (done: Int, rewritten: Int) {
      var (done, rewritten, bytes) = (0, 0, 0)
      for key in keys where bytes < 4 << 20 {
        done += 1
        guard let stored = try transaction.read(key: key) else { continue }
        bytes += stored.count
        if try cipher.isCurrent(stored, key: key) { continue }
        try transaction.write(encode(decode(stored, key: key), key: key), key: key)
        rewritten += 1
      }
      return (done, rewritten)
    }
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
