import StockroomCZlib
import StockroomCore

/// The parts of an archive as they are in the file. All numbers are little-endian. ArchiveFormat.md describes them.
enum ArchiveFormat {
  /// The version that is written, and the greatest that is read.
  static let version: UInt32 = 1
  /// Most bytes of entries in a block, before they are compressed.
  static let blockSize = 1 << 20
  /// The first byte is no text, and the line ends are both kinds, so that a transfer which converts either is noticed.
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
    static let isOneMoment: UInt32 = 1
  }

  /// Which times an entry may have, in nanoseconds: more than the engines of this package store.
  static let times = Int64.min...Int64.max

  /// What an entry has in front of its key and its value.
  static let entryHeaderSize = 26
}

/// CRC-32 with the polynomial of zlib and PKZIP. It is another one than that of the blocks on purpose: with the same polynomial the checksum of
/// something that ends with its own checksum is the same whatever it is.
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
  /// The number at an offset, which is within the buffer.
  func number<Number: FixedWidthInteger>(at offset: Int, as type: Number.Type = Number.self) -> Number {
    Number(littleEndian: loadUnaligned(fromByteOffset: offset, as: type))
  }

  /// Whether the last four bytes are the CRC-32C of those before.
  var hasRightChecksum: Bool {
    let end = count - ArchiveFormat.checksumSize
    guard end >= 0 else { return false }
    return CRC32C.checksum(UnsafeRawBufferPointer(rebasing: self[..<end])) == number(at: end, as: UInt32.self)
  }
}
