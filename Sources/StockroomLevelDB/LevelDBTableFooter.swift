import StockroomCore

/// The end of a table file, which says where its index is.
///
/// It is the one part of a table without a checksum, and LevelDB allocates as many bytes as it says before it
/// looks whether the file has them: a damaged footer would end the process.
///
/// The format: <https://github.com/google/leveldb/blob/1.23/doc/table_format.md>
enum LevelDBTableFooter {
  private static let size = 48
  private static let magic: [UInt8] = [0x57, 0xFB, 0x80, 0x8B, 0x24, 0x75, 0x47, 0xDB]
  /// Behind each block: its compression and its checksum.
  private static let blockTrailerSize = 5

  /// - Throws: ``StorageError`` with code `corrupted` if the footer points outside the file.
  static func verify(_ path: String) throws {
    let fileSize = try LevelDBFiles.size(of: path)
    let bytes = fileSize < size ? [] : try LevelDBFiles.read(path, from: fileSize - size, count: size)
    var rest = bytes[...]
    let words = (0..<4).map { _ in varint(&rest) }
    guard bytes.count == size, Array(bytes.suffix(magic.count)) == magic,
      isInside(offset: words[0], size: words[1], fileSize: fileSize),
      isInside(offset: words[2], size: words[3], fileSize: fileSize)
    else {
      throw StorageError(.corrupted, "\(path), a table of a LevelDB database, has a damaged end.")
    }
  }

  private static func isInside(offset: UInt64?, size: UInt64?, fileSize: Int) -> Bool {
    guard let offset, let size else { return false }
    let limit = UInt64(fileSize - Self.size)
    return offset <= limit && size <= limit && offset + size + UInt64(blockTrailerSize) <= limit
  }

  /// Seven bits in each byte, the lowest first; the highest bit says that more follow.
  private static func varint(_ bytes: inout ArraySlice<UInt8>) -> UInt64? {
    var value: UInt64 = 0
    for shift in stride(from: UInt64(0), to: 64, by: 7) {
      guard let byte = bytes.popFirst() else { return nil }
      value |= UInt64(byte & 0x7F) << shift
      if byte & 0x80 == 0 { return value }
    }
    return nil
  }
}
