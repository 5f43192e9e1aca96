import BenchmarkKit
import Foundation
import StockroomCore

/// Batches whose contents follow from a seed and their number, so that somebody else can tell what a store must
/// hold after any of them.
///
/// Each writes and removes some of a small set of keys, and puts its own number under ``marker``. Now and then
/// one begins by removing everything.
struct BatchSequence: Sendable {
  /// The key under which each batch puts its number, in decimal digits.
  static let marker = CacheKey(verbatim: "batch")

  let seed: UInt64

  /// The batch with a number from 1.
  func batch(_ number: Int) -> [StorageOperation] {
    var random = SplitMix64(seed: seed &+ UInt64(truncatingIfNeeded: number) &* 0x2545_f491_4f6c_dd1d)
    var operations: [StorageOperation] = random.next(upTo: 50) == 0 ? [.removeAll] : []
    for index in 0..<12 {
      let key = CacheKey(verbatim: "entries/\(random.next(upTo: 300))")
      if index.isMultiple(of: 6) {
        operations.append(.remove(key: key))
      } else {
        operations.append(.write(value(number, index, &random), key: key))
      }
    }
    operations.append(.write(Data("\(number)".utf8), key: Self.marker))
    return operations
  }

  /// A value that names its batch. One in sixteen is larger than a page of any engine.
  private func value(_ number: Int, _ index: Int, _ random: inout SplitMix64) -> Data {
    let size = random.next(upTo: 16) == 0 ? 20_000 : random.next(upTo: 1_000)
    return Data("batch \(number), entry \(index) ".utf8)
      + Data(repeating: UInt8(truncatingIfNeeded: random.next()), count: size)
  }

  /// The number of the last batch that an engine holds; 0 if it holds none.
  ///
  /// - Throws: `StorageError` with code `corrupted` if there is something else under ``marker``.
  static func last(in engine: any StorageEngine) async throws -> Int {
    guard let data = try await engine.read(key: marker) else { return 0 }
    guard let number = Int(String(decoding: data, as: UTF8.self)), number > 0 else {
      throw StorageError(.corrupted, "The entry \(marker) is no number of a batch.")
    }
    return number
  }
}
