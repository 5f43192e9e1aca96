#if canImport(CryptoKit) || Encryption
  #if canImport(CryptoKit)
    import CryptoKit
  #else
    import Crypto
  #endif
  import StockroomCore

  #if canImport(FoundationEssentials)
    public import FoundationEssentials
  #else
    public import Foundation
  #endif
  #if canImport(Darwin)
    import Darwin
  #elseif canImport(Glibc)
    import Glibc
  #elseif canImport(Musl)
    import Musl
  #endif

  /// A secret of 256 bits, with a name that is no secret.
  ///
  /// The name is stored with every value that was encrypted with the key, so that a ``Keyring`` finds it again. The bytes appear in
  /// no description, no error and no mirror of the key.
  public struct EncryptionKey: Sendable {
    /// How many bytes a key has.
    public static let byteCount = 32
    /// The most bytes of UTF-8 that a name may have.
    public static let maximumIdentifierLength = 32

    /// The name of the key, 1 to ``maximumIdentifierLength`` bytes of UTF-8: `2026`, say.
    public let identifier: String
    private let secret: SymmetricKey

    private init(identifier: String, secret: SymmetricKey) throws {
      guard 1...Self.maximumIdentifierLength ~= identifier.utf8.count else {
        throw StorageError(
          .unsupported,
          "The name of an encryption key has 1 to \(Self.maximumIdentifierLength) bytes, and this one has "
            + "\(identifier.utf8.count).")
      }
      self.identifier = identifier
      self.secret = secret
    }

    /// A key of these bytes, which somebody has taken from a generator of random numbers that is fit for it. A password is no key.
    ///
    /// - Throws: `StorageError` with code `unsupported` unless there are ``byteCount`` of them.
    public init(identifier: String, bytes: some ContiguousBytes) throws {
      let secret = SymmetricKey(data: bytes)
      guard secret.bitCount == Self.byteCount * 8 else {
        throw StorageError(
          .unsupported,
          "An encryption key has \(Self.byteCount) bytes, and that of \(identifier.debugDescription) has "
            + "\(secret.bitCount / 8).")
      }
      try self.init(identifier: identifier, secret: secret)
    }

    /// A new key, from the system's generator of random numbers.
    ///
    /// - Throws: `StorageError` with code `unsupported` if no key can have that name.
    public static func random(identifier: String) throws -> EncryptionKey {
      try EncryptionKey(identifier: identifier, secret: SymmetricKey(size: .bits256))
    }

    /// The key in a variable of the process's environment, in Base64.
    ///
    /// - Throws: `StorageError` with code `unsupported` if there is no such variable, or no key in it.
    public init(identifier: String, environmentVariable name: String) throws {
      guard let text = ProcessInfo.processInfo.environment[name] else {
        throw StorageError(.unsupported, "There is no environment variable \(name) with an encryption key.")
      }
      try self.init(identifier: identifier, base64: text, from: "The environment variable \(name)")
    }

    fileprivate init(identifier: String, base64 text: String, from source: String) throws {
      guard let bytes = Data(base64Encoded: text), bytes.count == Self.byteCount else {
        throw StorageError(.unsupported, "\(source) is not the Base64 of \(Self.byteCount) bytes.")
      }
      try self.init(identifier: identifier, bytes: bytes)
    }

    /// A key for one purpose, from which neither this one nor one for another purpose can be found.
    func derived(for purpose: String) -> SymmetricKey {
      HKDF<SHA256>.deriveKey(
        inputKeyMaterial: secret, info: Data("Stockroom 1: \(purpose)".utf8), outputByteCount: Self.byteCount)
    }

    fileprivate var base64: String { secret.withUnsafeBytes { Data($0) }.base64EncodedString() }
  }

  // MARK: - Files

  extension EncryptionKey {
    /// The key in a file, in Base64, with or without a line feed.
    ///
    /// - Parameters:
    ///   - identifier: The name of the key.
    ///   - file: Must be owned by the user of this process or by root, be open to its owner alone (mode 0600 or 0400), and be no symbolic
    ///     link.
    /// - Throws: `StorageError` that names the file: with code `permissionDenied` if another user owns it or others than its owner may open
    ///   it, `unsupported` if there is no key in it, otherwise what the system says.
    public init(identifier: String, contentsOf file: URL) throws {
      let path = file.path
      guard let descriptor = try FileDescriptor.openFile(atPath: path, O_RDONLY) else {
        throw StorageError(.io, "There is no file \(path) with an encryption key.")
      }
      let status = try descriptor.status()
      // The owner of a file can change its mode and its contents at any time. Root can do that anyway.
      guard status.owner == geteuid() || status.owner == 0 else {
        throw StorageError(
          .permissionDenied,
          "The file \(path) with an encryption key belongs to another user: the key could be exchanged or read."
        )
      }
      guard status.mode & 0o077 == 0 else {
        throw StorageError(
          .permissionDenied,
          "The file \(path) with an encryption key can be opened by other users than its owner: its mode must be 0600 or 0400."
        )
      }
      guard status.isRegularFile, status.size <= 64 else {
        throw StorageError(.unsupported, "\(path) is not the Base64 of \(Self.byteCount) bytes.")
      }
      let text = String(decoding: try descriptor.readBytes(status.size), as: UTF8.self)
      try self.init(identifier: identifier, base64: text.trimmingNewline(), from: path)
    }

    /// Writes the key to a new file that nobody but its owner may open (mode 0600), and syncs it and the name in its directory.
    ///
    /// - Throws: `StorageError` that names the file or the directory: with code `locked` if there is one already, which stays as it is;
    ///   otherwise what the system says, and there is no file then.
    public func write(to file: URL) throws {
      let path = file.path
      guard let descriptor = try FileDescriptor.makeFile(atPath: path, .owner) else {
        throw StorageError(.locked, "The file \(path) exists already.")
      }
      do {
        try Array("\(base64)\n".utf8).withUnsafeBytes { try descriptor.write($0) }
        try descriptor.synchronize()
        try FileManager.Directory.sync(FileManager.Directory(url: file.deletingLastPathComponent()).path)
      } catch {
        unlink(path)
        throw error
      }
    }
  }

  extension String {
    fileprivate func trimmingNewline() -> String { hasSuffix("\n") ? String(dropLast()) : self }
  }

  // MARK: - No secrets in logs

  extension EncryptionKey: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The name of the key.
    public var description: String { "EncryptionKey(\(identifier))" }
    /// The name of the key.
    public var debugDescription: String { description }
    /// The name of the key, and nothing else.
    public var customMirror: Mirror { Mirror(self, children: ["identifier": identifier]) }
  }
#endif
