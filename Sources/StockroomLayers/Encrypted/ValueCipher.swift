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

  #if canImport(Darwin)
    import Darwin
  #elseif canImport(Glibc)
    import Glibc
  #elseif canImport(Musl)
    import Musl
  #endif

  /// Encrypts and decrypts single values.
  ///
  /// A stored value consists of
  ///
  ///     1 byte   the version of this format: 1
  ///     1 byte   the length of the key's name: 1 to 32
  ///              the key's name
  ///     40 bytes the data key, wrapped with that key (RFC 3394)
  ///     4 bytes  CRC-32C of everything before, little-endian: without it, a corrupted name would be reported as an unknown key
  ///     12 bytes a nonce
  ///              the value, encrypted with the data key (AES-256-GCM)
  ///     16 bytes the tag
  ///
  /// The header, up to and including the checksum, and the entry's key are the additional authenticated data.
  ///
  /// Each cipher creates its own data key, which never leaves the process unwrapped. Nonces are random: NIST SP 800-38D, section
  /// 8.3, allows 2^32 of them with one key, after which the cipher creates another data key.
  final class ValueCipher: Sendable {
    private static let version: UInt8 = 1
    private static let wrappedLength = 40
    private static let checksumLength = 4
    private static let (nonceLength, tagLength) = (12, 16)
    /// The maximum number of values that one data key encrypts.
    static let mostUses = UInt64(1) << 32
    /// The maximum number of unwrapped data keys that are kept for decryption.
    private static let mostRemembered = 1_024

    private struct DataKey {
      let header: [UInt8]
      let key: SymmetricKey

      /// Whether the value begins with this key's header and is long enough for the nonce and the tag.
      func isKey(of stored: UnsafeRawBufferPointer) -> Bool {
        guard let start = stored.baseAddress, stored.count >= header.count + nonceLength + tagLength
        else { return false }
        return memcmp(start, header, header.count) == 0
      }
    }

    private struct State {
      var current: DataKey?
      /// How many values the current data key has encrypted.
      var uses: UInt64 = 0
      /// The data key of the value that was decrypted last.
      var last: DataKey?
      /// The unwrapped data keys, by their headers.
      var known: [[UInt8]: DataKey] = [:]
    }

    private let keyring: Keyring
    private let mostUses: UInt64
    private let state = MutexProtected(State())

    init(keyring: Keyring, mostUses: UInt64 = ValueCipher.mostUses) {
      (self.keyring, self.mostUses) = (keyring, mostUses)
    }

    func encrypt(_ value: Data, key: CacheKey) throws -> Data {
      let dataKey = try state.withLock { state in
        if let current = state.current, state.uses < mostUses {
          state.uses += 1
          return current
        }
        let new = try makeDataKey()
        (state.current, state.uses) = (new, 1)
        return new
      }
      let nonce = try Self.makeNonce()
      let box = try Self.withAuthenticated(dataKey, key) {
        try AES.GCM.seal(value, using: dataKey.key, nonce: nonce, authenticating: $0)
      }
      // Nil only if the nonce has another length.
      guard let combined = box.combined else { throw CryptoKitError.incorrectParameterSize }
      var stored = Data(capacity: dataKey.header.count + combined.count)
      stored.append(contentsOf: dataKey.header)
      stored.append(combined)
      return stored
    }

    func decrypt(_ stored: Data, key: CacheKey) throws -> Data {
      try stored.withUnsafeBytes { stored in
        let dataKey = try dataKey(of: stored, key)
        do {
          let combined = UnsafeRawBufferPointer(rebasing: stored[dataKey.header.count...])
          let box = try AES.GCM.SealedBox(combined: combined)
          let value = try Self.withAuthenticated(dataKey, key) {
            try AES.GCM.open(box, using: dataKey.key, authenticating: $0)
          }
          return value.startIndex == 0 ? value : Data(value)
        } catch {
          throw Self.corrupted(key, "it is not authentic", error)
        }
      }
    }

    /// Whether the value names the current key of the keyring.
    ///
    /// - Throws: `StorageError` with code `corrupted` if the header is not valid.
    func isCurrent(_ stored: Data, key: CacheKey) throws -> Bool {
      try stored.withUnsafeBytes { try Self.identifier(in: Self.header(of: $0, key)) } == keyring.current
    }

    // MARK: Headers

    /// Calls `body` with the additional authenticated data.
    private static func withAuthenticated<Result>(
      _ dataKey: DataKey, _ key: CacheKey, _ body: (UnsafeRawBufferPointer) throws -> Result
    ) throws -> Result {
      var name = key.value
      return try name.withUTF8 { name in
        let count = dataKey.header.count + name.count
        return try withUnsafeTemporaryAllocation(byteCount: count, alignment: 1) { bytes in
          bytes.copyBytes(from: dataKey.header)
          UnsafeMutableRawBufferPointer(rebasing: bytes[dataKey.header.count...]).copyBytes(from: name)
          return try body(UnsafeRawBufferPointer(bytes))
        }
      }
    }

    /// The header of a stored value, up to and including the checksum.
    ///
    /// - Throws: `StorageError` with code `corrupted` if the header is not valid, or the value is too short.
    private static func header(of stored: UnsafeRawBufferPointer, _ key: CacheKey) throws
      -> UnsafeRawBufferPointer
    {
      guard stored.count > 2 else { throw corrupted(key, "it is too short") }
      guard stored[0] == version else { throw corrupted(key, "its format is not known") }
      guard 1...EncryptionKey.maximumIdentifierLength ~= Int(stored[1]) else {
        throw corrupted(key, "no encryption key has a name of \(stored[1]) bytes")
      }
      let checked = 2 + Int(stored[1]) + wrappedLength
      let length = checked + checksumLength
      guard stored.count >= length + nonceLength + tagLength else { throw corrupted(key, "it is too short") }
      let checksum = CRC32C.checksum(UnsafeRawBufferPointer(rebasing: stored[..<checked]))
      guard checksum == UInt32(littleEndian: stored.loadUnaligned(fromByteOffset: checked, as: UInt32.self))
      else { throw corrupted(key, "the checksum of its header does not match") }
      return UnsafeRawBufferPointer(rebasing: stored[..<length])
    }

    private static func identifier(in header: UnsafeRawBufferPointer) -> String {
      String(decoding: header[2..<2 + Int(header[1])], as: UTF8.self)
    }

    private static func corrupted(
      _ key: CacheKey, _ reason: String, _ underlying: (any Error)? = nil
    ) -> StorageError {
      StorageError(.corrupted, "The value of \(key) cannot be decrypted: \(reason).", underlying: underlying)
    }

    // MARK: Data keys

    private func makeDataKey() throws -> DataKey {
      let key = SymmetricKey(size: .bits256)
      var header = [Self.version, UInt8(keyring.current.utf8.count)]
      header.append(contentsOf: keyring.current.utf8)
      header.append(contentsOf: try keyring.wrap(key))
      let checksum = header.withUnsafeBytes { CRC32C.checksum($0) }
      withUnsafeBytes(of: checksum.littleEndian) { header.append(contentsOf: $0) }
      return DataKey(header: header, key: key)
    }

    private static func makeNonce() throws -> AES.GCM.Nonce {
      #if canImport(CryptoKit)
        return AES.GCM.Nonce()
      #else
        // One system call. The library would make two, each of which takes as long as encrypting a kilobyte.
        return try withUnsafeTemporaryAllocation(byteCount: nonceLength, alignment: 1) { bytes in
          if let start = bytes.baseAddress, getentropy(start, bytes.count) != 0 {
            throw StorageError.posix(errno, "The system has no random bytes for a nonce.")
          }
          return try AES.GCM.Nonce(data: UnsafeRawBufferPointer(bytes))
        }
      #endif
    }

    private func dataKey(of stored: UnsafeRawBufferPointer, _ key: CacheKey) throws -> DataKey {
      // Most values have the same data key as the one before, and so the same header, which has been verified.
      if let last = state.withLock({ $0.last }), last.isKey(of: stored) { return last }
      let header = try Self.header(of: stored, key)
      let bytes = Array(header)
      let known = state.withLock { state in
        state.last = state.known[bytes] ?? state.last
        return state.known[bytes]
      }
      if let known { return known }
      let wrapped = header.dropLast(Self.checksumLength).suffix(Self.wrappedLength)
      let unwrapped = try keyring.unwrap(Data(wrapped), withKey: Self.identifier(in: header))
      let dataKey = DataKey(header: bytes, key: unwrapped)
      state.withLock { state in
        if state.known.count == Self.mostRemembered { state.known = [:] }
        state.known[bytes] = dataKey
        state.last = dataKey
      }
      return dataKey
    }
  }
#endif
