#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Which records there are: the same set is the same records.
struct RecordSet: Hashable, Sendable {
  let entries: Int
  let valueSize: Int
  let seed: UInt64
}

/// The records that all subjects store, and the order in which they are read.
///
/// They depend on the configuration only, so they are the same on every machine. Half of the keys are hashes,
/// as `CacheKey.init(_:)` makes them; the other half look like paths. Values compress to about half, as
/// documents do, so that neither an engine that compresses nor one that does not is flattered.
public struct BenchmarkRecords: Sendable {
  let set: RecordSet
  /// The records in the order of writing.
  public let all: [(key: CacheKey, data: Data)]
  /// The positions of all records in ``all``, in an order that has nothing to do with that of the keys.
  public let shuffled: [Int]

  init(_ set: RecordSet) {
    self.set = set
    var random = SplitMix64(seed: set.seed)
    all = (0..<set.entries).map { index in
      (Self.key(index, &random), Self.value(around: set.valueSize, &random))
    }
    shuffled = Array(0..<set.entries).shuffled(using: &random)
    bytes = all.reduce(0) { $0 + UInt64($1.key.value.utf8.count + $1.data.count) }
  }

  /// How many records there are.
  public var count: Int { all.count }

  /// How many bytes their keys and values have together.
  let bytes: UInt64

  /// Other values for the same keys.
  func newValues() -> [(key: CacheKey, data: Data)] {
    var random = SplitMix64(seed: ~set.seed)
    return all.map { ($0.key, Self.value(around: set.valueSize, &random)) }
  }

  /// Keys that look like those of the records, and are none of them.
  func absentKeys(_ count: Int) -> [CacheKey] {
    var random = SplitMix64(seed: set.seed &+ 1)
    return (0..<count).map { Self.key(set.entries + $0, &random) }
  }

  private static func key(_ index: Int, _ random: inout SplitMix64) -> CacheKey {
    let owner = random.next(upTo: 5_000)
    if index.isMultiple(of: 2) { return CacheKey("https://api.example.com/v2/users/\(owner)/items/\(index)") }
    let kinds = ["articles", "images", "profiles", "sessions"]
    return CacheKey(verbatim: "users/\(owner)/\(kinds[random.next(upTo: kinds.count)])/\(index).json")
  }

  private static func value(around size: Int, _ random: inout SplitMix64) -> Data {
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

/// A small generator of random numbers whose sequence depends on the seed only: SplitMix64, described by Steele,
/// Lea and Flood in "Fast splittable pseudorandom number generators" (2014).
package struct SplitMix64: RandomNumberGenerator, Sendable {
  private var state: UInt64

  package init(seed: UInt64) { state = seed }

  package mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
    return mixed ^ (mixed >> 31)
  }

  /// A number from 0 up to, and without, the bound.
  package mutating func next(upTo bound: Int) -> Int {
    Int.random(in: 0..<bound, using: &self)
  }
}
