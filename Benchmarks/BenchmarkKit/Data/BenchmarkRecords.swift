#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

/// The parameters from which records are generated. Equal parameters generate equal records.
struct RecordSet: Hashable, Sendable {
  let entries: Int
  let valueSize: Int
  let seed: UInt64
}

/// The records that all subjects store, and the order in which they are read.
///
/// They depend on the configuration only, so they are the same on every machine. Half of the keys are hashes,
/// created by `CacheKey.init(_:)`; the other half are paths. Values compress to about half of their size, as
/// documents do, so that neither engines that compress nor those that do not have an advantage.
public struct BenchmarkRecords: Sendable {
  let set: RecordSet
  /// The records in the order of writing.
  public let all: [(key: CacheKey, data: Data)]
  /// The positions of all records in ``all``, in random order.
  public let shuffled: [Int]

  init(_ set: RecordSet) {
    self.set = set
    var random = SeededRandom(seed: set.seed)
    all = (0..<set.entries).map { index in
      (Self.key(index, &random), Self.value(around: set.valueSize, &random))
    }
    shuffled = Array(0..<set.entries).shuffled(using: &random)
    bytes = all.reduce(0) { $0 + UInt64($1.key.value.utf8.count + $1.data.count) }
  }

  /// The number of records.
  public var count: Int { all.count }

  /// The total size of their keys and values in bytes.
  let bytes: UInt64

  /// Other values for the same keys.
  func newValues() -> [(key: CacheKey, data: Data)] {
    var random = SeededRandom(seed: ~set.seed)
    return all.map { ($0.key, Self.value(around: set.valueSize, &random)) }
  }

  /// Keys of the same form as those of the records, all of them absent from the records.
  func absentKeys(_ count: Int) -> [CacheKey] {
    var random = SeededRandom(seed: set.seed &+ 1)
    return (0..<count).map { Self.key(set.entries + $0, &random) }
  }

  private static func key(_ index: Int, _ random: inout SeededRandom) -> CacheKey {
    let owner = random.next(upTo: 5_000)
    if index.isMultiple(of: 2) { return CacheKey("https://api.example.com/v2/users/\(owner)/items/\(index)") }
    let kinds = ["articles", "images", "profiles", "sessions"]
    return CacheKey(verbatim: "users/\(owner)/\(kinds[random.next(upTo: kinds.count)])/\(index).json")
  }

  private static func value(around size: Int, _ random: inout SeededRandom) -> Data {
    let size = size / 2 + random.next(upTo: size + 1)
    var bytes: [UInt8] = []
    bytes.reserveCapacity(size + 32)
    while bytes.count < size {
      let words = (random.next(), random.next())
      withUnsafeBytes(of: words) {
        bytes += $0
        bytes += $0
      }
    }
    return Data(bytes.prefix(size))
  }
}
