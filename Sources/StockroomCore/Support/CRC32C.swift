import StockroomCSupport

/// CRC-32 with the polynomial of Castagnoli (RFC 3720, appendix B.4): detects torn and corrupted writes.
/// LevelDB adds it to everything that it writes.
package enum CRC32C {
  private static let hasInstruction = stockroom_crc32c_has_instruction()

  /// Remainders of a byte followed by 0 to 7 zero bytes, so that one step processes eight bytes.
  private static let tables: [UInt32] = {
    var tables = [UInt32](repeating: 0, count: 8 * 256)
    for byte in 0..<256 {
      var remainder = UInt32(byte)
      for _ in 0..<8 { remainder = remainder & 1 == 0 ? remainder >> 1 : remainder >> 1 ^ 0x82F6_3B78 }
      tables[byte] = remainder
    }
    for index in 256..<tables.count {
      let shorter = tables[index - 256]
      tables[index] = shorter >> 8 ^ tables[Int(shorter & 0xFF)]
    }
    return tables
  }()

  /// - Parameter earlier: The checksum of the bytes before these.
  package static func checksum(_ bytes: UnsafeRawBufferPointer, after earlier: UInt32 = 0) -> UInt32 {
    if hasInstruction { return ~stockroom_crc32c_update(~earlier, bytes.baseAddress, bytes.count) }
    return checksumByTables(bytes, after: earlier)
  }

  /// Like ``checksum(_:after:)``, on any processor.
  package static func checksumByTables(
    _ bytes: UnsafeRawBufferPointer, after earlier: UInt32 = 0
  ) -> UInt32 {
    tables.withUnsafeBufferPointer { tables in
      var remainder = ~earlier
      var offset = 0
      while offset + 8 <= bytes.count {
        let word = UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
        let mixed = word ^ UInt64(remainder)
        remainder = 0
        for index in 0..<8 {
          remainder ^= tables[(7 - index) * 256 + Int(mixed >> (8 * index) & 0xFF)]
        }
        offset += 8
      }
      while offset < bytes.count {
        remainder = remainder >> 8 ^ tables[Int((remainder ^ UInt32(bytes[offset])) & 0xFF)]
        offset += 1
      }
      return ~remainder
    }
  }

  package static func checksum(_ bytes: [UInt8]) -> UInt32 { bytes.withUnsafeBytes { checksum($0) } }
}
