#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// How values become bytes, and bytes values.
///
/// ``JSONCodec`` is the default everywhere. Bring another to store property lists, MessagePack or encrypted JSON:
///
/// ```swift
/// struct PropertyListCodec: Codec {
///   func encode(_ value: some Encodable) throws -> Data { try PropertyListEncoder().encode(value) }
///   func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
///     try PropertyListDecoder().decode(type, from: data)
///   }
/// }
/// ```
///
/// A codec is called from several threads at the same time, and never on the main actor but by ``StoredValue``, which
/// works where it is called.
public protocol Codec: Sendable {
  /// The bytes of a value, such that ``decode(_:from:)`` gives an equal value back.
  ///
  /// - Throws: any error; it reaches the caller inside a `StorageError` with code
  ///   `StorageError.Code.encodingFailed`.
  func encode(_ value: some Encodable) throws -> Data

  /// The value that the bytes were made from.
  ///
  /// - Throws: any error; it reaches the caller inside a `StorageError` with code
  ///   `StorageError.Code.decodingFailed`.
  func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value
}

/// Plain JSON of the value and nothing around it, with the settings that `JSONEncoder` starts with.
///
/// Of a URL it has the absolute form, and of an optional within an optional only whether there is a value in the end.
public struct JSONCodec: Codec {
  private let encoder = JSONEncoder()
  private let decoder = JSONDecoder()

  /// The default codec.
  public init() {}

  /// JSON of the value. Numbers that are not finite throw, since JSON has none.
  public func encode(_ value: some Encodable) throws -> Data { try encoder.encode(value) }

  /// The value that the JSON describes.
  public func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
    try decoder.decode(type, from: data)
  }
}

extension Codec where Self == JSONCodec {
  /// Plain JSON of the value and nothing around it.
  public static var json: JSONCodec { JSONCodec() }
}
