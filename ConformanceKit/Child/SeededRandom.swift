#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Random numbers that follow from a seed: SplitMix64, described by Steele, Lea and Flood in "Fast splittable
/// pseudorandom number generators" (2014).
struct SeededRandom: RandomNumberGenerator, Sendable {
  private var state: UInt64

  init(seed: UInt64) { state = seed }

  /// The same for each number of a series, so that any of them can be made without the others.
  init(seed: UInt64, number: Int) {
    self.init(seed: seed &+ UInt64(truncatingIfNeeded: number) &* 0xd134_2543_de82_ef95)
  }

  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
    return mixed ^ (mixed >> 31)
  }

  /// A number from 0 up to, and without, the bound.
  mutating func next(upTo bound: Int) -> Int { Int.random(in: 0..<bound, using: &self) }

  /// True once in so many times.
  mutating func once(in times: Int) -> Bool { next(upTo: times) == 0 }

  /// So many bytes.
  mutating func bytes(_ count: Int) -> Data {
    var bytes = Data(capacity: count + 8)
    while bytes.count < count { withUnsafeBytes(of: next()) { bytes.append(contentsOf: $0) } }
    return bytes.prefix(count)
  }
}
