#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A value that a sequence writes, stored as its parameters, so that it is cheap to keep and short to print.
struct CommandValue: Sendable, Hashable {
  /// Distinguishes values.
  var number: Int
  /// The number of bytes of noise; nil if the value consists of the digits of its number.
  var size: Int?
  /// Whether the byte in the middle differs from that of the otherwise equal value.
  var differsInTheMiddle = false

  init(_ number: Int, size: Int? = nil, differsInTheMiddle: Bool = false) {
    (self.number, self.size, self.differsInTheMiddle) = (number, size, differsInTheMiddle)
  }

  /// The bytes.
  var data: Data {
    guard let size else { return Data(String(number).utf8) }
    let start = Self.place(of: number) & (Self.period - 1)
    var data = Data(capacity: size)
    while data.count < size {
      let from = (start + data.count) & (Self.period - 1)
      data.append(contentsOf: Self.noise[from..<min(Self.period, from + size - data.count)])
    }
    if differsInTheMiddle, size > 0 { data[size / 2] ^= 0xFF }
    return data
  }

  // All noise is part of one byte sequence, which repeats after 2 MiB.
  private static let period = 1 << 21
  private static let noise: [UInt8] = (0..<period).map(byte)

  private static func place(of number: Int) -> Int { number &* 1_000_003 }

  private static func byte(at place: Int) -> UInt8 {
    UInt8(truncatingIfNeeded: (place &* 0x9E37_79B9) >> 13)
  }

  /// A function that returns the same noise, for the generated source of a test.
  static let source = """
    /// Noise: `count` bytes that are others for each number.
    private func noise(_ number: Int, _ count: Int, differsInTheMiddle: Bool = false) -> Data {
      var bytes = (0..<count).map {
        UInt8(truncatingIfNeeded: ((number &* 1_000_003 &+ $0) &* 0x9E37_79B9) >> 13)
      }
      if differsInTheMiddle { bytes[count / 2] ^= 0xFF }
      return Data(bytes)
    }
    """
}

extension CommandValue {
  /// Whether the bytes are too many to be listed in source.
  var isPrintedAsNoise: Bool { (size ?? 0) > 8 }

  /// The value as a Swift expression.
  var literal: String {
    guard let size else { return "Data(\"\(number)\".utf8)" }
    if size == 0 { return "Data()" }
    let middle = differsInTheMiddle ? ", differsInTheMiddle: true" : ""
    return isPrintedAsNoise
      ? "noise(\(number), \(size)\(middle))" : "Data([\(data.map(String.init).joined(separator: ", "))])"
  }
}
