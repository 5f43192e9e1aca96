import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension Codec {
  /// The bytes of a value that is to be stored under a key, such that the same value can be had from them.
  ///
  /// JSON does not tell an optional that holds nil from nil itself, and has the absolute form of a URL only. Where such
  /// a value comes back as another, which takes a decoding to know, it is refused. Inside of other types nobody can
  /// tell, since only the type knows what of it is encoded.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`.
  func encodeForRoundTrip<Value: Codable>(_ value: Value, for key: CacheKey) throws(StorageError) -> Data {
    let bytes = try encode(value, for: key)
    guard let value = value as? any ChangeableByCoding, type(of: value).isChangeable else { return bytes }
    let decoded = try decode(Value.self, from: bytes, of: key)
    guard value.isSame(as: decoded) else {
      throw StorageError(
        .encodingFailed,
        "The value of \(key), \(value), would come back as \(decoded): its encoding does not tell the two apart."
      )
    }
    return bytes
  }
}

/// A type of the standard library or Foundation some of whose values an encoder may take for others.
private protocol ChangeableByCoding {
  /// Whether that is so for this type, or for what it contains.
  static var isChangeable: Bool { get }
  func isSame(as other: Any) -> Bool
}

extension URL: ChangeableByCoding {
  fileprivate static var isChangeable: Bool { true }
  fileprivate func isSame(as other: Any) -> Bool { self == other as? URL }
}

extension Optional: ChangeableByCoding {
  fileprivate static var isChangeable: Bool {
    Wrapped.self is any ExpressibleByNilLiteral.Type
      || (Wrapped.self as? any ChangeableByCoding.Type)?.isChangeable == true
  }

  fileprivate func isSame(as other: Any) -> Bool {
    switch (self, other as? Self) {
    case (nil, .some(nil)): true
    case (let value?, .some(let other?)): areSame(value, other)
    default: false
    }
  }
}

extension Array: ChangeableByCoding {
  fileprivate static var isChangeable: Bool {
    (Element.self as? any ChangeableByCoding.Type)?.isChangeable == true
  }

  fileprivate func isSame(as other: Any) -> Bool {
    guard let other = other as? Self, other.count == count else { return false }
    return zip(self, other).allSatisfy { areSame($0, $1) }
  }
}

extension Dictionary: ChangeableByCoding {
  fileprivate static var isChangeable: Bool {
    (Value.self as? any ChangeableByCoding.Type)?.isChangeable == true
  }

  fileprivate func isSame(as other: Any) -> Bool {
    guard let other = other as? Self, other.count == count else { return false }
    return allSatisfy { key, value in other[key].map { areSame(value, $0) } ?? false }
  }
}

private func areSame<Value>(_ value: Value, _ other: Value) -> Bool {
  (value as? any ChangeableByCoding)?.isSame(as: other) ?? true
}
