import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Maps the keys of a cache to keys of an engine.
///
/// An engine's key is `cache:`, the length of the namespace, `:`, the namespace, `:`, and the encoded key. With the
/// length, no prefix of one namespace is a prefix of another. A namespace that is too long is replaced by its hash, and so is a key
/// that is too long. They are hashed separately, so that all entries of a namespace have the same prefix.
struct CacheNamespace: Sendable {
  /// Leaves room for most encoded keys.
  private static let maximumPrefixLength = 256

  /// The prefix of the keys of all entries in this namespace.
  let prefix: String
  private let fullPrefix: String
  private let isHashed: Bool

  init(_ namespace: String) {
    fullPrefix = "cache:\(namespace.utf8.count):\(namespace):"
    isHashed = fullPrefix.utf8.count > Self.maximumPrefixLength
    prefix = isHashed ? "cache#\(CacheKey(fullPrefix).value):" : fullPrefix
  }

  /// The engine's key of an entry, and what distinguishes the entry from others with the same hash.
  struct Name: Sendable {
    let key: CacheKey
    /// The full name in UTF-8, which is stored in the entry if the key contains a hash.
    let fullName: Data?
  }

  /// The name of the entry of a key.
  func name(of encodedKey: EncodedKey) -> Name {
    var key = CacheKey(verbatim: prefix + encodedKey.string)
    let isTooLong = key.value.utf8.count > CacheKey.maximumLength
    if !isHashed && !isTooLong { return Name(key: key, fullName: nil) }
    // An encoded key never begins with a number sign.
    if isTooLong { key = CacheKey(verbatim: "\(prefix)#\(CacheKey(encodedKey.string).value)") }
    return Name(key: key, fullName: Data(fullPrefix.utf8) + Data(encodedKey.string.utf8))
  }

  /// The keys of the cache whose entries an engine's key may name.
  enum Keys {
    case none, any
    case one(EncodedKey)
  }

  /// The keys of the cache that may be stored under this key of the engine; `any` if the key contains a hash of a key of the cache.
  func keys(of key: CacheKey) -> Keys {
    guard key.value.utf8.starts(with: prefix.utf8) else { return .none }
    let rest = String(key.value.utf8.dropFirst(prefix.utf8.count)) ?? ""
    return rest.utf8.first == UInt8(ascii: "#") ? .any : .one(EncodedKey(encoding: rest))
  }

  /// Whether an entry whose key starts with ``prefix`` belongs to this namespace, and not to one with the same hash.
  func contains(_ entry: CacheEntry?) -> Bool {
    guard isHashed else { return true }
    return entry?.fullName?.starts(with: fullPrefix.utf8) ?? false
  }
}
