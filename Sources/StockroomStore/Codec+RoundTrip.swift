import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension Codec {
  /// Encodes a value, and throws if it would be decoded as a different one.
  ///
  /// JSON does not distinguish an optional that contains nil from nil itself, and contains only the absolute
  /// form of a URL. For optionals, URLs, and arrays and dictionaries of them, the bytes are decoded and
  /// compared. Other types are responsible for their own encoding.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`.
  func encodeForRoundTrip<Value: Codable>(_ value: Value, for key: CacheKey) throws(StorageError) -> Data {
    let bytes = try encode(value, for: key)
    guard let value = value as? any LossyCodable, type(of: value).mayLoseInformation else { return bytes }
    let decoded: Value
    do {
      decoded = try decode(Value.self, from: bytes, of: key)
    } catch {
      throw StorageError(
        .encodingFailed, "The value of \(key) is encoded as something that cannot be decoded.",
        underlying: error)
    }
    guard value.isSame(as: decoded) else {
      throw StorageError(
        .encodingFailed,
        "The value of \(key), \(value), would be decoded as \(decoded): both have the same encoding."
      )
    }
    return bytes
  }
}

/// A type of the standard library or Foundation that may encode different values as the same bytes.
private protocol LossyCodable {
  /// Whether different values of this type, or of its elements, may have the same encoding.
  static var mayLoseInformation: Bool { get }
  func isSame(as other: Any) -> Bool
}

extension URL: LossyCodable {
  fileprivate static var mayLoseInformation: Bool { true }
  fileprivate func isSame(as other: Any) -> Bool { self == other as? URL }
}

extension Optional: LossyCodable {
  fileprivate static var mayLoseInformation: Bool {
    Wrapped.self is any ExpressibleByNilLiteral.Type
      || (Wrapped.self as? any LossyCodable.Type)?.mayLoseInformation == true
  }

  fileprivate func isSame(as other: Any) -> Bool {
    switch (self, other as? Self) {
    case (nil, .some(nil)): true
    case (let value?, .some(let other?)): areSame(value, other)
    default: false
    }
  }
}

extension Array: LossyCodable {
  fileprivate static var mayLoseInformation: Bool {
    (Element.self as? any LossyCodable.Type)?.mayLoseInformation == true
  }

  fileprivate func isSame(as other: Any) -> Bool {
    guard let other = other as? Self, other.count == count else { return false }
    return zip(self, other).allSatisfy { areSame($0, $1) }
  }
}

extension Dictionary: LossyCodable {
  fileprivate static var mayLoseInformation: Bool {
    (Value.self as? any LossyCodable.Type)?.mayLoseInformation == true
  }

  fileprivate func isSame(as other: Any) -> Bool {
    guard let other = other as? Self, other.count == count else { return false }
    return allSatisfy { key, value in other[key].map { areSame(value, $0) } ?? false }
  }
}

private func areSame<Value>(_ value: Value, _ other: Value) -> Bool {
  (value as? any LossyCodable)?.isSame(as: other) ?? true
}
