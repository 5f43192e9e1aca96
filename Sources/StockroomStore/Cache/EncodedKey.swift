import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A key of a cache, encoded as text and compared byte for byte, unlike `String`, for which canonically equivalent texts are equal.
///
/// A `String`, `UUID` or `URL` is an equals sign and its text. Any other key is its JSON with sorted keys, which never
/// begins with an equals sign.
struct EncodedKey: Hashable, Sendable {
  private static let encoder = {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return encoder
  }()

  private let bytes: CacheKey

  var string: String { bytes.value }

  /// Encodes a key.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`.
  init(_ key: some Encodable) throws {
    bytes = CacheKey(verbatim: try Self.text(of: key))
  }

  /// The key with this encoding.
  init(encoding: String) { bytes = CacheKey(verbatim: encoding) }

  private static func text(of key: some Encodable) throws -> String {
    switch key {
    case let key as String: return "=" + key
    case let key as UUID: return "=" + key.uuidString
    case let key as URL:
      // JSON contains only the resolved URL, while `==` distinguishes it from a relative URL with a base.
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
