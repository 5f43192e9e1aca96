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

  /// Encrypts and decrypts single values.
  ///
  /// A stored value is
  ///
  ///     1 byte   the version of this format: 1
  ///     1 byte   the length of the key's name
  ///              the key's name
  ///     40 bytes the data key, wrapped with that key (RFC 3394)
  ///     4 bytes  CRC-32C of everything before, little-endian: who has changed the name of the key by accident hears of corruption
  ///     12 bytes a nonce
  ///              the value, encrypted with the data key (AES-256-GCM)
  ///     16 bytes the tag
  ///
  /// with the header, up to the checksum, and the entry's key as additional authenticated data.
  ///
  /// Each opening has a data key of its own, which never leaves the process unwrapped. Nonces are random: NIST SP 800-38D, section 8.3,
  /// allows 2^32 of them with one key, after which there is another data key here.
  final class ValueCipher: Sendable {
    private static let version: UInt8 = 1
    private static let wrappedLength = 40
    private static let checksumLength = 4
    private static let (nonceLength, tagLength) = (12, 16)
    /// How many values one data key encrypts.
    static let mostUses = UInt64(1) << 32
    /// How many data keys are remembered unwrapped: those of so many openings.
    private static let mostRemembered = 1_024

    private struct DataKey {
      let header: Data
      let key: SymmetricKey
      var uses: UInt64 = 0
    }

    private struct State {
      var current: DataKey?
      /// What was decrypted last.
      var last: (header: Data, key: SymmetricKey)?
      /// Data keys by their headers.
      var known: [Data: SymmetricKey] = [:]
    }

    private let keyring: Keyring
    private let mostUses: UInt64
    private let state = MutexProtected(State())

    init(keyring: Keyring, mostUses: UInt64 = ValueCipher.mostUses) {
      (self.keyring, self.mostUses) = (keyring, mostUses)
    }

    func encrypt(_ value: Data, key: CacheKey) throws -> Data {
      let dataKey = try state.withLock { state in
        var dataKey = try state.current ?? makeDataKey()
        if dataKey.uses == mostUses { dataKey = try makeDataKey() }
        dataKey.uses += 1
        state.current = dataKey
        return dataKey
      }
      let box = try AES.GCM.seal(
        value, using: dataKey.key, authenticating: Self.authenticated(dataKey.header, key))
      var stored = dataKey.header
      stored.reserveCapacity(Self.overhead(of: dataKey.header) + value.count)
      stored.append(contentsOf: box.nonce)
      stored.append(box.ciphertext)
      stored.append(box.tag)
      return stored
    }

    func decrypt(_ stored: Data, key: CacheKey) throws -> Data {
      let header = try Self.header(of: stored, key)
      let dataKey = try dataKey(of: header)
      do {
        let box = try AES.GCM.SealedBox(combined: stored.dropFirst(header.count))
        let value = try AES.GCM.open(
          box, using: dataKey, authenticating: Self.authenticated(header, key))
        return value.startIndex == 0 ? value : Data(value)
      } catch {
        throw Self.corrupted(key, "it is not authentic", error)
      }
    }

    /// Whether the value was encrypted with the key that encrypts now.
    func isCurrent(_ stored: Data, key: CacheKey) throws -> Bool {
      Self.identifier(in: try Self.header(of: stored, key)) == keyring.current
    }

    // MARK: Headers

    private static func overhead(of header: Data) -> Int { header.count + nonceLength + tagLength }

    private static func authenticated(_ header: Data, _ key: CacheKey) -> Data {
      var name = key.value
      return name.withUTF8 { name in
        var data = Data(capacity: header.count + name.count)
        data.append(header)
        data.append(name)
        return data
      }
    }

    /// The header of a stored value, as a slice of it.
    private static func header(of stored: Data, _ key: CacheKey) throws -> Data {
      guard stored.count > 2 else { throw corrupted(key, "it is too short") }
      let start = stored.startIndex
      guard stored[start] == version else { throw corrupted(key, "its format is not known") }
      let checked = 2 + Int(stored[start + 1]) + wrappedLength
      let length = checked + checksumLength
      guard stored.count >= length + nonceLength + tagLength else { throw corrupted(key, "it is too short") }
      let isIntact = stored.withUnsafeBytes { bytes in
        CRC32C.checksum(UnsafeRawBufferPointer(rebasing: bytes[..<checked]))
          == UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: checked, as: UInt32.self))
      }
      guard isIntact else { throw corrupted(key, "its header has another checksum") }
      return stored.prefix(length)
    }

    private static func identifier(in header: Data) -> String {
      String(decoding: header.dropFirst(2).prefix(Int(header[header.startIndex + 1])), as: UTF8.self)
    }

    private static func corrupted(
      _ key: CacheKey, _ reason: String, _ underlying: (any Error)? = nil
    ) -> StorageError {
      StorageError(.corrupted, "The value of \(key) cannot be decrypted: \(reason).", underlying: underlying)
    }

    // MARK: Data keys

    private func makeDataKey() throws -> DataKey {
      let key = SymmetricKey(size: .bits256)
      var header = Data([Self.version, UInt8(keyring.current.utf8.count)])
      header.append(contentsOf: keyring.current.utf8)
      header.append(try keyring.wrap(key))
      let checksum = header.withUnsafeBytes { CRC32C.checksum($0) }
      withUnsafeBytes(of: checksum.littleEndian) { header.append(contentsOf: $0) }
      return DataKey(header: header, key: key)
    }

    private func dataKey(of header: Data) throws -> SymmetricKey {
      let known = state.withLock { state -> SymmetricKey? in
        // Most values are of the same opening as the one before.
        if let last = state.last, last.header == header { return last.key }
        let known = state.known[header]
        if let known { state.last = (Data(header), known) }
        return known
      }
      if let known { return known }
      let key = try keyring.unwrap(
        Data(header.dropLast(Self.checksumLength).suffix(Self.wrappedLength)),
        withKey: Self.identifier(in: header))
      state.withLock { state in
        if state.known.count == Self.mostRemembered { state.known = [:] }
        state.known[Data(header)] = key
      }
      return key
    }
  }
#endif
