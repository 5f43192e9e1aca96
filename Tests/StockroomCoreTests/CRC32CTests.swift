import StockroomCore
import Testing

@Suite("CRC-32C") struct CRC32CTests {
  // RFC 3720, appendix B.4, and the check value of the catalog of parametrized CRC algorithms.
  static let vectors: [(bytes: [UInt8], checksum: UInt32)] = [
    (Array("123456789".utf8), 0xE306_9283),
    ([UInt8](repeating: 0, count: 32), 0x8A91_36AA),
    ([UInt8](repeating: 0xFF, count: 32), 0x62A8_AB43),
    (Array(0..<32), 0x46DD_794E),
    (Array((0..<32).reversed()), 0x113F_DB5C),
    (
      [
        0x01, 0xC0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18,
        0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      ], 0xD996_3A56
    ),
    ([], 0),
  ]

  @Test("The published vectors have the published checksums", arguments: vectors.indices)
  func checksums(index: Int) {
    let (bytes, checksum) = Self.vectors[index]
    #expect(CRC32C.checksum(bytes) == checksum)
    #expect(bytes.withUnsafeBytes { CRC32C.checksumByTables($0) } == checksum)
  }

  @Test("All implementations have the same checksum of bytes of every length")
  func lengths() {
    let bytes = (0..<2_100).map { UInt8(truncatingIfNeeded: $0 &* $0 &* 37 &+ $0 >> 8) }
    bytes.withUnsafeBytes { bytes in
      for count in 0...bytes.count {
        let part = UnsafeRawBufferPointer(rebasing: bytes[..<count])
        let (checksum, expected) = (CRC32C.checksum(part, after: 7), CRC32C.checksumByTables(part, after: 7))
        #expect(checksum == expected, "\(count) bytes")
      }
    }
  }

  @Test("A checksum can be continued from that of the preceding bytes, in every implementation")
  func parts() {
    let bytes = (0..<1_000).map { UInt8(truncatingIfNeeded: $0 &* 37) }
    let whole = CRC32C.checksum(bytes)
    bytes.withUnsafeBytes { bytes in
      for count in 0...100 {
        let (first, second) = (bytes[..<count], bytes[count...])
        let earlier = CRC32C.checksum(UnsafeRawBufferPointer(rebasing: first))
        #expect(CRC32C.checksum(UnsafeRawBufferPointer(rebasing: second), after: earlier) == whole)
        #expect(CRC32C.checksumByTables(UnsafeRawBufferPointer(rebasing: second), after: earlier) == whole)
      }
    }
  }
}
