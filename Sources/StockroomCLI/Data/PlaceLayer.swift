import ArgumentParser
import Foundation
import StockroomCore
import StockroomLayers

/// The maximum size in bytes of a value that is decompressed, restored from an archive or read from standard input: two
/// of these fit into memory. The limit of the program that has compressed the value is not known.
let maximumValueSize = Int(clamping: ProcessInfo.processInfo.physicalMemory / 2)

/// A layer in front of a place, as written on the command line: `compressed`, `namespaced=NAME`.
enum PlaceLayer: Sendable, Equatable {
  case compressed, checksummed, inventory
  case namespaced(String)
  /// The lifetime of entries that are written. Nil if they never expire.
  case expiring(Duration?)
  case encrypted, hidden

  static let spellings =
    "compressed, checksummed, inventory, namespaced=NAME, expiring, expiring=30d, encrypted, hidden"

  /// - Throws: `ValidationError`.
  init(_ text: String) throws {
    let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
    let parameter = parts.count > 1 ? parts[1] : nil
    switch (parts[0], parameter) {
    case ("compressed", nil): self = .compressed
    case ("checksummed", nil): self = .checksummed
    case ("inventory", nil): self = .inventory
    case ("encrypted", nil): self = .encrypted
    case ("hidden", nil): self = .hidden
    case ("namespaced", let name?) where !name.isEmpty: self = .namespaced(name)
    case ("expiring", nil): self = .expiring(nil)
    case ("expiring", let time?): self = .expiring(try Self.duration(time))
    case ("namespaced", _):
      throw ValidationError("The layer namespaced needs a name, such as namespaced=drafts.")
    case ("compressed", _), ("checksummed", _), ("inventory", _), ("encrypted", _), ("hidden", _):
      throw ValidationError("The layer \(parts[0]) takes no parameter.")
    default:
      throw ValidationError("There is no layer \(text.escaped). Layers: \(Self.spellings).")
    }
  }

  private static func duration(_ text: String) throws -> Duration {
    let units: [Character: Int] = ["s": 1, "m": 60, "h": 3_600, "d": 86_400]
    guard let unit = text.last.flatMap({ units[$0] }), let number = Int(text.dropLast()), number > 0,
      case let (seconds, isTooLong) = number.multipliedReportingOverflow(by: unit), !isTooLong,
      // So that the time of expiry can be stored.
      seconds <= 200 * 366 * 86_400
    else {
      throw ValidationError(
        "A lifetime is a whole number followed by s, m, h or d, up to 200 years, such as 30d, and not \(text.escaped)."
      )
    }
    return .seconds(seconds)
  }

  /// Whether the layer needs an engine with transactions, even to read.
  var needsTransactions: Bool {
    switch self {
    case .inventory, .namespaced: true
    default: false
    }
  }

  var needsKeys: Bool { self == .encrypted || self == .hidden }
}

/// The key files for the values of a place and for its keys, as written on the command line: `NAME=PATH`.
struct PlaceKeys: Sendable {
  struct File: Sendable {
    let name: String
    let path: String

    init(_ text: String, _ option: String) throws {
      let parts = text.split(separator: "=", maxSplits: 1).map(String.init)
      guard parts.count == 2, text.first != "=" else {
        throw ValidationError(
          "\(option) takes the name of a key and its file, such as \(option) 2026=keys/2026, and not \(text.escaped)."
        )
      }
      (name, path) = (parts[0], parts[1])
    }
  }

  /// The first one encrypts; the others only decrypt.
  let values: [File]
  let names: File?
}

extension PlaceLayer {
  #if canImport(CryptoKit) || Encryption
    static let canEncrypt = true
  #else
    static let canEncrypt = false
  #endif

  /// The layer in front of an engine.
  ///
  /// - Parameter keys: Needed by layers that encrypt.
  func withLayer(on base: some StorageEngine, _ keys: PlaceKeys.Contents?) throws -> any StorageEngine {
    switch self {
    case .compressed: return base.compressed(maximumValueSize: maximumValueSize)
    case .checksummed: return base.checksummed()
    case .inventory: return try base.checksummedWithInventory()
    case .namespaced(let name): return try base.namespaced(name)
    case .expiring(let lifetime): return base.expiring(after: lifetime)
    case .encrypted, .hidden:
      #if canImport(CryptoKit) || Encryption
        guard let keys else { throw StorageError(.unsupported, "There is no key to encrypt with.") }
        guard self == .hidden, let names = keys.names else { return base.encrypted(with: keys.keyring) }
        return base.encrypted(with: keys.keyring, hidingKeysWith: names)
      #else
        throw StorageError(.unsupported, "This command was built without the trait Encryption.")
      #endif
    }
  }
}

#if canImport(CryptoKit) || Encryption
  extension PlaceKeys {
    /// The contents of the key files.
    struct Contents: Sendable {
      let keyring: Keyring
      let names: EncryptionKey?
    }

    /// Reads every file once.
    func read() throws -> Contents {
      guard let first = values.first else {
        throw StorageError(.unsupported, "There is no key to encrypt with.")
      }
      return Contents(
        keyring: try Keyring(first.key, previous: values.dropFirst().map { try $0.key }),
        names: try names?.key)
    }
  }

  extension PlaceKeys.File {
    fileprivate var key: EncryptionKey {
      get throws {
        try EncryptionKey(
          identifier: name, contentsOf: URL(commandLinePath: path, directoryHint: .notDirectory))
      }
    }
  }
#else
  extension PlaceKeys {
    struct Contents: Sendable {}

    func read() throws -> Contents {
      throw StorageError(.unsupported, "This command was built without the trait Encryption.")
    }
  }
#endif
