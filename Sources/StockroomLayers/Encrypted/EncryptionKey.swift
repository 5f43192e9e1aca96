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

  /// A secret key of 256 bits, with a name that is not secret.
  ///
  /// The name is stored with every value that was encrypted with the key, so that a ``Keyring`` finds the key again. The bytes
  /// appear in no description, no error and no mirror of the key.
  public struct EncryptionKey: Sendable {
    /// How many bytes a key has.
    public static let byteCount = 32
    /// The maximum length of a name in bytes of UTF-8.
    public static let maximumIdentifierLength = 32

    /// The name of the key, 1 to ``maximumIdentifierLength`` bytes of UTF-8, such as `2026`.
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

    /// Creates a key from bytes, which must come from a cryptographically secure random number generator. A password is not a key.
    ///
    /// - Throws: `StorageError` with code `unsupported` unless there are ``byteCount`` bytes and the name has a valid length.
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

    /// Creates a key from the system's random number generator.
    ///
    /// - Throws: `StorageError` with code `unsupported` unless the name has a valid length.
    public static func random(identifier: String) throws -> EncryptionKey {
      try EncryptionKey(identifier: identifier, secret: SymmetricKey(size: .bits256))
    }

    /// Reads the key from an environment variable, in Base64.
    ///
    /// - Throws: `StorageError` with code `unsupported` if there is no such variable, it contains no key, or the name of the key
    ///   has no valid length.
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

    /// Derives the key for one purpose. Neither this key nor the key for another purpose can be computed from it.
    func derived(for purpose: String) -> SymmetricKey {
      HKDF<SHA256>.deriveKey(
        inputKeyMaterial: secret, info: Data("Stockroom 1: \(purpose)".utf8), outputByteCount: Self.byteCount)
    }

    fileprivate var base64: String { secret.withUnsafeBytes { Data($0) }.base64EncodedString() }
  }

  // MARK: - Files

  extension EncryptionKey {
    /// Reads the key from a file, in Base64, with or without a final line feed.
    ///
    /// - Parameters:
    ///   - identifier: The name of the key.
    ///   - file: The file. It must be owned by the user of this process or by root, must be accessible to its owner only (mode 0600
    ///     or 0400), and must not be a symbolic link.
    /// - Throws: `StorageError` that names the file: with code `permissionDenied` if another user owns it or users other than its
    ///   owner may open it, `unsupported` if it contains no key, `corrupted` if it is a symbolic link, `io` if it does not exist;
    ///   otherwise with the code of the system's error.
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

    /// Writes the key to a new file that only its owner may open (mode 0600), and syncs the file and its directory.
    ///
    /// - Throws: `StorageError` that names the file or the directory: with code `locked` if the file exists already, which stays as
    ///   it is; otherwise with the code of the system's error, after which the file does not exist.
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
