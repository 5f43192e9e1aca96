import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Gives the entries of a cache their names in an engine.
///
/// A name is `cache:`, the length of the namespace, `:`, the namespace, `:`, and the text of the key. The length makes
/// sure that the names of one namespace never start like those of another. What would be too long is hashed, the
/// namespace and the key each for itself, so that all entries of a namespace still share a prefix.
struct CacheNamespace: Sendable {
  /// Leaves room for the text of most keys.
  private static let maximumPrefixLength = 256

  /// What the keys of all entries of this namespace, and of no other, start with.
  let prefix: String
  private let fullPrefix: String
  private let isHashed: Bool

  init(_ namespace: String) {
    fullPrefix = "cache:\(namespace.utf8.count):\(namespace):"
    isHashed = fullPrefix.utf8.count > Self.maximumPrefixLength
    prefix = isHashed ? "cache#\(CacheKey(fullPrefix).value):" : fullPrefix
  }

  /// Where an entry is, and how it is told from one whose hash is the same.
  struct Name: Sendable {
    let key: CacheKey
    /// The whole name in UTF-8, where the key has a hash in its place. It is stored with the entry.
    let proof: Data?
  }

  /// The name of the entry of a key.
  func name(of text: KeyText) -> Name {
    var key = CacheKey(verbatim: prefix + text.string)
    let isTooLong = key.value.utf8.count > CacheKey.maximumLength
    if !isHashed && !isTooLong { return Name(key: key, proof: nil) }
    // The text of a key never begins with a number sign.
    if isTooLong { key = CacheKey(verbatim: "\(prefix)#\(CacheKey(text.string).value)") }
    return Name(key: key, proof: Data(fullPrefix.utf8) + Data(text.string.utf8))
  }

  /// Whether an entry whose key starts with ``prefix`` is of this namespace, and not of one with the same hash.
  func contains(_ entry: CacheEntry?) -> Bool {
    guard isHashed else { return true }
    return entry?.proof?.starts(with: fullPrefix.utf8) ?? false
  }
}
