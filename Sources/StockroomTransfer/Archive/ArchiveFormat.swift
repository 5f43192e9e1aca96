import StockroomCZlib
import StockroomCore

/// The layout of an archive. All numbers are little-endian. ArchiveFormat.md describes it.
enum ArchiveFormat {
  /// The version that is written, and the greatest that can be read.
  static let version: UInt32 = 1
  /// The maximum number of bytes of entries in a block, before compression.
  static let blockSize = 1 << 20
  /// The first byte is not valid in a text, and the last three are CR, LF and Ctrl-Z, so that a transfer that converts
  /// texts or line ends is detected.
  static let signature: [UInt8] = [0x89] + Array("STKR".utf8) + [0x0D, 0x0A, 0x1A]

  static let headerSize = 28
  static let blockHeaderSize = 24
  static let endSize = 44
  static let checksumSize = 4

  static let blockKind: UInt32 = 0x4B4C_4253  // "SBLK"
  static let endKind: UInt32 = 0x444E_4553  // "SEND"

  enum Method {
    static let stored: UInt32 = 0
    static let zlib: UInt32 = 1
  }

  enum Flags {
    static let isSnapshot: UInt32 = 1
  }

  /// The timestamps that an entry may have, in nanoseconds: a larger range than the engines of this package store.
  static let times = Int64.min...Int64.max

  /// The size of the header before the key and value of an entry.
  static let entryHeaderSize = 26
}

/// CRC-32 with the polynomial of zlib and PKZIP. It deliberately differs from that of the blocks: with the
/// same polynomial, the checksum of data that end with their own checksum is always the same.
enum CRC32 {
  static func checksum(_ bytes: UnsafeRawBufferPointer, after earlier: UInt32) -> UInt32 {
    guard let start = bytes.baseAddress?.assumingMemoryBound(to: Bytef.self) else { return earlier }
    return UInt32(truncatingIfNeeded: crc32_z(uLong(earlier), start, bytes.count))
  }
}

extension [UInt8] {
  mutating func append<Number: FixedWidthInteger>(number: Number) {
    Swift.withUnsafeBytes(of: number.littleEndian) { append(contentsOf: $0) }
  }

  /// Appends the CRC-32C of everything in the array.
  mutating func appendChecksum() { append(number: CRC32C.checksum(self)) }
}

extension UnsafeRawBufferPointer {
  /// The number at an offset, which must be within the buffer.
  func number<Number: FixedWidthInteger>(at offset: Int, as type: Number.Type = Number.self) -> Number {
    Number(littleEndian: loadUnaligned(fromByteOffset: offset, as: type))
  }

  /// Whether the last four bytes are the CRC-32C of the bytes before.
  var hasRightChecksum: Bool {
    let end = count - ArchiveFormat.checksumSize
    guard end >= 0 else { return false }
    return CRC32C.checksum(UnsafeRawBufferPointer(rebasing: self[..<end])) == number(at: end, as: UInt32.self)
  }
}
