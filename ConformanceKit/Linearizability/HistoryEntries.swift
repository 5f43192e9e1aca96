#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The keys and values of histories, as numbers and as the engine stores them.
struct HistoryEntries: Sendable {
  /// Values from here on are written only once; smaller ones repeatedly.
  static let firstUnique = 4

  let keys: [CacheKey]
  private let numbers: [CacheKey: Int]

  /// - Parameter count: The number of keys, at most 26.
  init(count: Int) {
    keys = (0..<count).map { key(String(UnicodeScalar(UInt8(97 + $0)))) }
    numbers = Dictionary(uniqueKeysWithValues: keys.enumerated().map { ($0.element, $0.offset) })
  }

  func number(of key: CacheKey) -> Int? { numbers[key] }

  /// The bytes of a value. If a value is written only once, they contain its key; the others are the same for every
  /// key.
  func data(of cell: Cell) -> Data {
    let isUnique = cell.value >= Self.firstUnique
    let text = isUnique ? "\(cell.key) \(cell.value) " : "\(cell.value) "
    // Some are longer, because a faulty engine is more likely to mix parts of long values.
    let padding = cell.value % 11 == 0 ? 3_000 : cell.value % 5 == 0 ? 200 : 0
    return Data(text.utf8) + Data(repeating: UInt8(ascii: "."), count: padding)
  }

  /// The value of the bytes, for the given key if it is known; nil if it was never written.
  func cell(of data: Data, key: Int? = nil) -> Cell? {
    let numbers = data.prefix { $0 != UInt8(ascii: ".") }.split(separator: UInt8(ascii: " ")).map {
      Int(String(decoding: $0, as: UTF8.self))
    }
    let cell: Cell
    switch (numbers.count, numbers.first ?? nil, numbers.last ?? nil) {
    case (2, let owner?, let value?) where value >= Self.firstUnique && (key ?? owner) == owner:
      cell = Cell(key: owner, value: value)
    case (1, _, let value?) where value > 0 && value < Self.firstUnique && key != nil:
      cell = Cell(key: key ?? 0, value: value)
    default: return nil
    }
    return self.data(of: cell) == data ? cell : nil
  }

  /// The result that consists of these entries, if each was requested and occurs once.
  func answer(_ found: [(key: CacheKey, data: Data)], of asked: [Int]) -> HistoryCall.Answer {
    answer(found, of: asked) { entry in number(of: entry.key).flatMap { cell(of: entry.data, key: $0) } }
  }

  /// The result that consists of these values, which contain their keys.
  func answer(_ values: [Data], of asked: [Int]) -> HistoryCall.Answer {
    answer(values, of: asked) { cell(of: $0) }
  }

  /// The result that consists of these keys.
  func answer(keys found: [CacheKey], of asked: [Int]) -> HistoryCall.Answer {
    // There may be millions of keys.
    guard found.count <= asked.count else { return .nonsense }
    let numbers = found.compactMap(number)
    let isSound = numbers.count == found.count && Set(numbers).count == found.count
    return isSound && Set(numbers).isSubset(of: asked) ? .exist(Set(numbers)) : .nonsense
  }

  private func answer<Element>(
    _ found: [Element], of asked: [Int], cell: (Element) -> Cell?
  ) -> HistoryCall.Answer {
    var values: [Int: Int] = [:]
    for element in found {
      guard let cell = cell(element), asked.contains(cell.key),
        values.updateValue(cell.value, forKey: cell.key) == nil
      else { return .nonsense }
    }
    return .found(values)
  }
}
