import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The text that a key of a cache is known by, compared byte for byte: what `==` of `String` calls equal may differ.
///
/// A `String`, `UUID` or `URL` is written as it is, after an equals sign. Anything else is its JSON with sorted keys,
/// which never begins with one.
struct KeyText: Hashable, Sendable {
  private static let encoder = {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return encoder
  }()

  private let bytes: CacheKey

  var string: String { bytes.value }

  /// The text of a key.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`.
  init(_ key: some Encodable) throws {
    bytes = CacheKey(verbatim: try Self.text(of: key))
  }

  private static func text(of key: some Encodable) throws -> String {
    switch key {
    case let key as String: return "=" + key
    case let key as UUID: return "=" + key.uuidString
    case let key as URL:
      // JSON would have the resolved URL only, where `==` tells a relative one and its base from it.
      return "=" + sequence(first: key, next: \.baseURL).map(\.relativeString).joined(separator: " ")
    case let key as Int: return String(key)
    default:
      do {
        return String(decoding: try encoder.encode(key), as: UTF8.self)
      } catch {
        throw StorageError(
          .encodingFailed, "The key \(key), a \(type(of: key)), could not be encoded.", underlying: error)
      }
    }
  }
}
