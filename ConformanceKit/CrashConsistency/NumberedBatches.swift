#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

/// Batches, numbered from 1, whose contents follow from a seed and their number, so that another process can
/// compute the expected contents after any of them (see ``ExpectedContents``).
///
/// Each writes and removes some of a few hundred keys and ends by writing its number under ``marker``. Over
/// sixty batches the store grows, is overwritten, and shrinks; occasionally everything is removed. Some
/// values are larger than a page of any engine, a few much larger. No two writes have the same value.
struct NumberedBatches: Sendable, Hashable, Codable {
  /// The key under which each batch writes its number, in decimal digits.
  static let marker = CacheKey(verbatim: "batch")

  let seed: UInt64

  init(seed: UInt64) { self.seed = seed }

  /// The operations of the batch with a number from 1, in order.
  func operations(of number: Int) -> [StorageOperation] {
    var random = SeededRandom(seed: seed, number: number)
    let count = [1, 4, 10, 10, 10, 10, 40][random.next(upTo: 7)]
    let removals = removals(in: number)
    var operations: [StorageOperation] = random.once(in: 50) ? [.removeAll] : []
    for index in 0..<count {
      let key = Self.key(random.next(upTo: Self.keyCount))
      if random.next(upTo: 10) < removals {
        operations.append(.remove(key: key))
      } else {
        operations.append(.write(Self.value("batch \(number), entry \(index)", &random), key: key))
      }
    }
    operations.append(.write(Data("\(number)".utf8), key: Self.marker))
    return operations
  }

  /// How many of ten operations are removals.
  private func removals(in number: Int) -> Int {
    switch number % 60 {
    case ..<35: 1
    case ..<50: 4
    default: 8
    }
  }

  /// How many keys there are, in addition to the marker.
  static let keyCount = 400

  static func key(_ number: Int) -> CacheKey {
    // Some are longer than a file name can be.
    CacheKey(verbatim: "entries/\(number)" + (number % 16 == 0 ? String(repeating: "·", count: 150) : ""))
  }

  /// A value whose first line says where it comes from. The rest cannot be compressed.
  static func value(_ origin: String, _ random: inout SeededRandom) -> Data {
    let size =
      switch random.next(upTo: 200) {
      case 0: 150_000
      case 1...8: 10_000 + random.next(upTo: 10_000)
      default: random.next(upTo: 600)
      }
    return Data("\(origin)\n".utf8) + random.bytes(size)
  }

  /// The number of the last batch that an engine holds; 0 if it holds none.
  ///
  /// - Throws: ``Violation`` of W6 if the value under ``marker`` is not a number.
  static func last(in engine: any StorageEngine) async throws -> Int {
    guard let data = try await engine.read(key: marker) else { return 0 }
    guard let number = Int(String(decoding: data, as: UTF8.self)), number > 0 else {
      throw Violation("the value of \(marker) was \(describe(data)), which was never written", rule: .w6)
    }
    return number
  }
}
