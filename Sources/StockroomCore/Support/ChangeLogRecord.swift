extension ChangeLog {
  /// The changes of one commit.
  ///
  /// All numbers are little-endian. 4 bytes: the length of the record, with the highest bit set once the commit is confirmed; 4
  /// bytes: the CRC-32C of all bytes that follow; 8 bytes: the number of the commit; 8 bytes: the number of the writer; 4 bytes:
  /// the number of keys, or all ones for a change of everything; then the keys, each preceded by its length in 2 bytes.
  struct Record {
    let commit: UInt64
    let writer: UInt64
    let change: StorageChange
    /// Whether the writer has confirmed that the commit was made.
    var isConfirmed = false
  }
}

extension ChangeLog.Record {
  /// A record that would be longer reports a change of everything instead.
  static let maximumSize = 1 << 16
  private static let headerSize = 28
  /// The bit in the length that is set once the commit is confirmed.
  static let confirmation: UInt32 = 1 << 31

  /// The bytes of the record in the log.
  func encoded() -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: Self.headerSize)
    var count = UInt32.max
    if case .keys(let keys) = change {
      count = UInt32(keys.count)
      for key in keys {
        key.withUTF8 { key in
          withUnsafeBytes(of: UInt16(key.count).littleEndian) { bytes += $0 }
          bytes += key
        }
      }
      if bytes.count > Self.maximumSize {
        bytes.removeSubrange(Self.headerSize...)
        count = .max
      }
    }
    func store(_ number: some FixedWidthInteger, _ offset: Int) {
      bytes.withUnsafeMutableBytes {
        $0.storeBytes(of: number.littleEndian, toByteOffset: offset, as: type(of: number))
      }
    }
    store(UInt32(bytes.count), 0)
    store(commit, 8)
    store(writer, 16)
    store(count, 24)
    store(bytes.withUnsafeBytes { CRC32C.checksum(UnsafeRawBufferPointer(rebasing: $0[8...])) }, 4)
    return bytes
  }

  /// The first record and its length. Nil if the record is incomplete or corrupted.
  static func decode(_ bytes: ArraySlice<UInt8>) -> (record: Self, count: Int)? {
    bytes.withUnsafeBytes { bytes in
      func number<Number: FixedWidthInteger>(_ type: Number.Type, at offset: Int) -> Number {
        Number(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: type))
      }
      guard bytes.count >= headerSize else { return nil }
      let lengthWord = number(UInt32.self, at: 0)
      let length = Int(lengthWord & ~confirmation)
      guard (headerSize...bytes.count).contains(length),
        CRC32C.checksum(UnsafeRawBufferPointer(rebasing: bytes[8..<length])) == number(UInt32.self, at: 4)
      else { return nil }
      let count = number(UInt32.self, at: 24)
      var change = StorageChange.everything
      if count != .max {
        var keys: Set<CacheKey> = []
        var offset = headerSize
        for _ in 0..<count {
          guard offset + 2 <= length else { return nil }
          let size = Int(number(UInt16.self, at: offset))
          offset += 2
          guard offset + size <= length,
            let key = CacheKey(utf8: UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + size]))
          else { return nil }
          keys.insert(key)
          offset += size
        }
        change = .keys(keys)
      }
      return (
        Self(
          commit: number(UInt64.self, at: 8), writer: number(UInt64.self, at: 16), change: change,
          isConfirmed: lengthWord & confirmation != 0),
        length
      )
    }
  }
}
