#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomStore

/// An item of five fields.
struct StoredItem: StorableItem, Identifiable, Equatable {
  let id: String
  let name: String
  var age: Int
  let score: Double
  let tags: [String]

  static func numbered(_ numbers: Range<Int>, name: String = "the name of an item") -> [StoredItem] {
    numbers.map { number in
      StoredItem(
        id: "item \(number)", name: "\(name) \(number)", age: number % 100, score: Double(number) / 4,
        tags: ["a tag", "tag \(number % 7)"])
    }
  }

  /// The approximate mean size of 10,000 items as JSON, in bytes.
  static let meanSize = 100

  /// The entries that a store writes for these items.
  static func entries(
    _ numbers: Range<Int>, name: String = "the name of an item"
  ) throws -> [(key: CacheKey, data: Data)] {
    let codec = JSONCodec()
    return try numbered(numbers, name: name).map { (CacheKey(verbatim: $0.id), try codec.encode($0)) }
  }
}
