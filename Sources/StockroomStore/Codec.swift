#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Converts values to bytes and back.
///
/// ``JSONCodec`` is the default. Implement another to store property lists, MessagePack or encrypted JSON:
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
/// A codec is called from several threads at the same time, and not on the main actor, except by ``StoredValue``, which
/// runs on the thread of its caller.
public protocol Codec: Sendable {
  /// Encodes a value, such that ``decode(_:from:)`` returns an equal one.
  ///
  /// - Throws: any error; the caller receives it as the `underlying` error of a `StorageError` with code
  ///   `StorageError.Code.encodingFailed`.
  func encode(_ value: some Encodable) throws -> Data

  /// Decodes a value.
  ///
  /// - Throws: any error; the caller receives it as the `underlying` error of a `StorageError` with code
  ///   `StorageError.Code.decodingFailed`.
  func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value
}

/// Encodes values as JSON, with the default settings of `JSONEncoder`.
///
/// A URL is encoded in its absolute form. Nested optionals that contain nil are all encoded as null.
public struct JSONCodec: Codec {
  private let encoder = JSONEncoder()
  private let decoder = JSONDecoder()

  /// Creates a codec.
  public init() {}

  /// Encodes a value as JSON.
  ///
  /// - Throws: `EncodingError`, including for numbers that are not finite, which JSON cannot represent; errors that the
  ///   value throws.
  public func encode(_ value: some Encodable) throws -> Data { try encoder.encode(value) }

  /// Decodes a value from JSON.
  ///
  /// - Throws: `DecodingError` if the bytes are not the JSON of such a value; errors that the type throws.
  public func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
    try decoder.decode(type, from: data)
  }
}

extension Codec where Self == JSONCodec {
  /// The JSON codec.
  public static var json: JSONCodec { JSONCodec() }
}
