#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A seeded random number generator with the same output on every platform and compiler: SplitMix64,
/// described by Steele, Lea and Flood in "Fast splittable pseudorandom number generators" (2014).
package struct SeededRandom: RandomNumberGenerator, Sendable {
  private static let step: UInt64 = 0x9e37_79b9_7f4a_7c15

  private var state: UInt64

  package init(seed: UInt64) { state = seed }

  /// The generator with this number in a series of generators. Each can be created without the others.
  package init(seed: UInt64, number: Int) {
    self.init(seed: seed &+ UInt64(truncatingIfNeeded: number) &* 0xd134_2543_de82_ef95)
  }

  /// A generator for a seed of the series made by ``seed(after:)``, whose sequences would otherwise overlap.
  package init(scrambling seed: UInt64) { state = Self.scramble(seed ^ 0x5dee_ce66_d1ce_4e5b) }

  /// The seed after this one. The series visits all 2^64 seeds before it repeats.
  package static func seed(after seed: UInt64) -> UInt64 { seed &+ step }

  package mutating func next() -> UInt64 {
    state &+= Self.step
    return Self.scramble(state)
  }

  /// A number from 0 to `bound - 1`; 0 if the bound is not positive.
  package mutating func next(upTo bound: Int) -> Int {
    guard bound > 1 else { return 0 }
    return Int(truncatingIfNeeded: next().multipliedFullWidth(by: UInt64(bound)).high)
  }

  /// True with probability 1 / `times`.
  package mutating func once(in times: Int) -> Bool { next(upTo: times) == 0 }

  /// One of the elements; nil if the array is empty.
  package mutating func pick<Element>(_ elements: [Element]) -> Element? {
    elements.isEmpty ? nil : elements[next(upTo: elements.count)]
  }

  /// One of the choices, with probability proportional to its weight.
  package mutating func pick<Choice>(_ choices: KeyValuePairs<Choice, Int>, otherwise: Choice) -> Choice {
    var number = next(upTo: choices.reduce(0) { $0 + $1.value })
    for (choice, weight) in choices {
      if number < weight { return choice }
      number -= weight
    }
    return otherwise
  }

  /// The given number of random bytes.
  package mutating func bytes(_ count: Int) -> Data {
    var bytes = Data(count: (count + 7) / 8 * 8)
    bytes.withUnsafeMutableBytes { bytes in
      for offset in stride(from: 0, to: bytes.count, by: 8) {
        bytes.storeBytes(of: next(), toByteOffset: offset, as: UInt64.self)
      }
    }
    return bytes.prefix(count)
  }

  private static func scramble(_ number: UInt64) -> UInt64 {
    var number = number
    number = (number ^ (number >> 30)) &* 0xbf58_476d_1ce4_e5b9
    number = (number ^ (number >> 27)) &* 0x94d0_49bb_1331_11eb
    return number ^ (number >> 31)
  }
}
