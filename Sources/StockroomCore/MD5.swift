/// The MD5 message digest of RFC 1321, which ``CacheKey`` uses to spread texts over short keys.
package enum MD5 {
  package struct Digest {
    package let bytes: [UInt8]

    /// The sixteen bytes in upper-case hexadecimal, grouped like a UUID.
    var uuidFormatted: String {
      let digits = Array("0123456789ABCDEF".utf8)
      return String(unsafeUninitializedCapacity: 36) { buffer in
        var length = 0
        for (index, byte) in bytes.enumerated() {
          if [4, 6, 8, 10].contains(index) {
            buffer[length] = UInt8(ascii: "-")
            length += 1
          }
          buffer[length] = digits[Int(byte >> 4)]
          buffer[length + 1] = digits[Int(byte & 15)]
          length += 2
        }
        return length
      }
    }
  }

  /// The digest of the bytes. Costs time proportional to their number.
  package static func digest(of message: some Collection<UInt8>) -> Digest {
    var padded = Array(message)
    let bitCount = UInt64(padded.count) &* 8
    padded.append(0x80)
    padded.append(contentsOf: repeatElement(0, count: (120 - padded.count % 64) % 64))
    for shift in stride(from: 0, to: 64, by: 8) {
      padded.append(UInt8(truncatingIfNeeded: bitCount >> shift))
    }

    var state: (a: UInt32, b: UInt32, c: UInt32, d: UInt32) = (
      0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476
    )
    padded.withUnsafeBytes { bytes in
      for block in stride(from: 0, to: bytes.count, by: 64) {
        transform(&state, UnsafeRawBufferPointer(rebasing: bytes[block..<block + 64]))
      }
    }
    return Digest(
      bytes: [state.a, state.b, state.c, state.d].flatMap { word in
        (0..<4).map { UInt8(truncatingIfNeeded: word >> (8 * $0)) }
      })
  }

  /// One block of 64 bytes: the four rounds of RFC 1321, section 3.4, as one loop.
  private static func transform(
    _ state: inout (a: UInt32, b: UInt32, c: UInt32, d: UInt32), _ block: UnsafeRawBufferPointer
  ) {
    var (a, b, c, d) = state
    for step in 0..<64 {
      let mixed: UInt32
      let word: Int
      switch step / 16 {
      case 0: (mixed, word) = ((b & c) | (~b & d), step)
      case 1: (mixed, word) = ((b & d) | (c & ~d), (5 * step + 1) % 16)
      case 2: (mixed, word) = (b ^ c ^ d, (3 * step + 5) % 16)
      default: (mixed, word) = (c ^ (b | ~d), (7 * step) % 16)
      }
      let input = UInt32(littleEndian: block.loadUnaligned(fromByteOffset: word * 4, as: UInt32.self))
      let sum = a &+ mixed &+ sines[step] &+ input
      let rotation = rotations[step / 16 * 4 + step % 4]
      (a, d, c, b) = (d, c, b, b &+ (sum << rotation | sum >> (32 - rotation)))
    }
    state = (state.a &+ a, state.b &+ b, state.c &+ c, state.d &+ d)
  }

  private static let rotations: [UInt32] = [7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21]

  /// The integer part of 2³² · |sin(i)| for i from 1 to 64, i in radians.
  private static let sines: [UInt32] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
  ]
}
