import StockroomKitSupport

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Random numbers distributed by Zipf's law: few are frequent, most are rare.
///
/// The method is that of Gray and others, "Quickly generating billion-record synthetic databases" (SIGMOD 1994), which
/// the Yahoo! Cloud Serving Benchmark uses with an exponent of 0.99.
struct Zipfian: Sendable {
  private static let exponent = 0.99

  private(set) var count: Int
  private var zeta: Double
  private static let zetaOfTwo = 1 + pow(0.5, exponent)

  /// The numbers from 0 up to, not including, `count`; 0 is the most frequent. O(count).
  init(count: Int) {
    self.count = count
    zeta = (1...max(1, count)).reduce(0) { $0 + 1 / pow(Double($1), Self.exponent) }
  }

  /// Adds one number to the range. O(1).
  mutating func grow() {
    count += 1
    zeta += 1 / pow(Double(count), Self.exponent)
  }

  func next(_ random: inout SeededRandom) -> Int {
    let uniform = Double.random(in: 0..<1, using: &random)
    let scaled = uniform * zeta
    if scaled < 1 || count < 2 { return 0 }
    if scaled < Self.zetaOfTwo { return 1 }
    let eta =
      (1 - pow(2 / Double(count), 1 - Self.exponent)) / (1 - Self.zetaOfTwo / zeta)
    let number = Double(count) * pow(eta * uniform - eta + 1, 1 / (1 - Self.exponent))
    return min(count - 1, Int(number))
  }

  /// Scatters the numbers over the range by hashing. Numbers with the same hash modulo `count` coincide.
  func nextScattered(_ random: inout SeededRandom) -> Int {
    Int(Self.hash(UInt64(next(&random))) % UInt64(count))
  }

  /// FNV-1a of the eight bytes of a number.
  static func hash(_ number: UInt64) -> UInt64 {
    (0..<8).reduce(0xcbf2_9ce4_8422_2325) { hash, byte in
      (hash ^ (number >> (8 * UInt64(byte)) & 0xff)) &* 0x100_0000_01b3
    }
  }
}
