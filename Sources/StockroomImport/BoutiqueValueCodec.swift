import StockroomStore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The JSON in which Boutique stores a single value, wrapped in an object: `{"value":true}`.
///
/// On Apple's systems, `StoredValue` stores its values in the same place as Boutique's: in the user defaults,
/// under the same key. With this codec, it reads the values that Boutique has stored there, and stores new
/// ones in the same form. So nothing has to be imported, and Boutique can read the values too:
///
/// ```swift
/// @StoredValue(key: "openLinksInSafari", codec: .boutiqueValue) var openLinksInSafari = true
/// ```
///
/// Without this codec, such a value cannot be decoded. The codec also reads values that Boutique's
/// `AsyncStoredValue` has stored in an engine.
public struct BoutiqueValueCodec: Codec {
  private let json = JSONCodec()

  /// Creates a codec.
  public init() {}

  /// Encodes a value, wrapped in an object.
  ///
  /// - Throws: `EncodingError`; what the value throws.
  public func encode(_ value: some Encodable) throws -> Data { try json.encode(EncodedBox(value: value)) }

  /// Decodes the value in an object. Ignores other members.
  ///
  /// - Throws: `DecodingError` if the bytes are not such an object; what the type throws.
  public func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
    try json.decode(DecodedBox<Value>.self, from: data).value
  }

  private struct EncodedBox<Value: Encodable>: Encodable {
    let value: Value
  }

  private struct DecodedBox<Value: Decodable>: Decodable {
    let value: Value
  }

  /// The JSON of the value in an object that Boutique has encoded, with the same bytes; nil if the data are not such an
  /// object.
  static func unboxed(_ data: Data) -> Data? {
    let prefix = Data(#"{"value":"#.utf8)
    guard data.starts(with: prefix), data.last == UInt8(ascii: "}") else { return nil }
    let value = Data(data.dropFirst(prefix.count).dropLast())
    // An object with other members leaves a rest such as `1,"other":2`, which is not valid JSON.
    do { _ = try JSONDecoder().decode(AnyJSON.self, from: value) } catch { return nil }
    return value
  }

  /// Any JSON, which the parser has checked before this is decoded.
  private struct AnyJSON: Decodable {
    init(from decoder: any Decoder) {}
  }
}

extension Codec where Self == BoutiqueValueCodec {
  /// The codec of single values that Boutique stores.
  public static var boutiqueValue: BoutiqueValueCodec { BoutiqueValueCodec() }
}
