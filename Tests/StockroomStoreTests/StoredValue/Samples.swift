import Foundation
import StockroomStore

struct RedPanda: Codable, Equatable {
  var cuteRating: Int
  var name: String? = nil
}

struct LikedVideos: Codable, Equatable { var ids: [Int] }

struct DownloadedVideos: Codable, Equatable { var ids: [Int] }

enum Theme: String, Codable { case light, dark, system }

/// A codec of somebody else's, so that what is stored is no JSON.
struct PropertyListCodec: Codec {
  func encode(_ value: some Encodable) throws -> Data { try PropertyListEncoder().encode(value) }
  func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
    try PropertyListDecoder().decode(type, from: data)
  }
}
