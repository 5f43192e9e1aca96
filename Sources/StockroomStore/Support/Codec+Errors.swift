import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension StorageError.Code {
  /// A value could not be encoded. Nothing was stored.
  public static let encodingFailed = StorageError.Code("encodingFailed")
  /// The bytes of an entry could not be decoded. They are kept.
  public static let decodingFailed = StorageError.Code("decodingFailed")
}

extension Codec {
  /// Encodes the value of a key.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`.
  func encode(_ value: some Encodable, for key: CacheKey) throws(StorageError) -> Data {
    do {
      return try encode(value)
    } catch {
      throw StorageError(
        .encodingFailed, "The value of \(key), a \(type(of: value)), could not be encoded.", underlying: error
      )
    }
  }

  /// Decodes the value of a key.
  ///
  /// - Throws: `StorageError` with code `decodingFailed`.
  func decode<Value: Decodable>(
    _ type: Value.Type, from data: Data, of key: CacheKey
  ) throws(StorageError) -> Value {
    do {
      return try decode(type, from: data)
    } catch {
      throw StorageError(
        .decodingFailed, "The \(data.count) bytes of \(key) could not be decoded as \(type).",
        underlying: error)
    }
  }
}
