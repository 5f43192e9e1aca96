import Foundation
import StockroomStore

/// A custom codec whose output is not JSON.
struct PropertyListCodec: Codec {
  func encode(_ value: some Encodable) throws -> Data { try PropertyListEncoder().encode(value) }
  func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
    try PropertyListDecoder().decode(type, from: data)
  }
}
