import StockroomStore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The JSON in which Boutique stores a single value, an object around it: `{"value":true}`.
///
/// On Apple's systems `StoredValue` keeps its values where Boutique's does, in the user defaults, under the same key. With this codec it reads
/// those that Boutique left there and stores new ones in the same form, so that nothing has to be imported, and Boutique can read them too:
///
/// ```swift
/// @StoredValue(key: "openLinksInSafari", codec: .boutiqueValue) var openLinksInSafari = true
/// ```
///
/// Without it such a value cannot be decoded. The codec also reads what Boutique's `AsyncStoredValue` stored in an engine.
public struct BoutiqueValueCodec: Codec {
  private let json = JSONCodec()

  /// Creates a codec.
  public init() {}

  /// Encodes a value in an object.
  ///
  /// - Throws: `EncodingError`; what the value throws.
  public func encode(_ value: some Encodable) throws -> Data { try json.encode(EncodedBox(value: value)) }

  /// Decodes the value in an object. Ignores what else is in it.
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

  /// The JSON of the value in an object that Boutique has encoded, byte for byte, or nil if the bytes are nothing of the kind.
  static func unboxed(_ data: Data) -> Data? {
    let prefix = Data(#"{"value":"#.utf8)
    guard data.starts(with: prefix), data.last == UInt8(ascii: "}") else { return nil }
    let value = Data(data.dropFirst(prefix.count).dropLast())
    // Not `1,"other":2`, which is no JSON by itself.
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
