import StockroomCore

/// The end of a table file, which contains the position of its index.
///
/// The footer is the one part of a table without a checksum. LevelDB allocates as many bytes as it states before it
/// compares them with the size of the file: a corrupted footer would end the process.
///
/// The format: <https://github.com/google/leveldb/blob/1.23/doc/table_format.md>
enum LevelDBTableFooter {
  private static let size = 48
  private static let magic: [UInt8] = [0x57, 0xFB, 0x80, 0x8B, 0x24, 0x75, 0x47, 0xDB]
  /// The trailer of each block: its compression and its checksum.
  private static let blockTrailerSize = 5

  /// - Throws: `StorageError` with code `corrupted` if the table is missing, has another size, or if its
  ///   footer points outside of it.
  static func verify(_ number: UInt64, size expected: UInt64, in files: LevelDBFiles) throws {
    var path = files.path + "/" + LevelDBFileList.tableName(number)
    var end = try files.readEnd(of: LevelDBFileList.tableName(number), count: size)
    if end == nil, let old = try files.readEnd(of: LevelDBFileList.oldTableName(number), count: size) {
      (end, path) = (old, files.path + "/" + LevelDBFileList.oldTableName(number))
    }
    guard let (bytes, fileSize) = end else {
      throw StorageError(.corrupted, "\(path), a table of a LevelDB database, is missing.")
    }
    guard UInt64(fileSize) == expected, bytes.count == size else {
      throw StorageError(
        .corrupted, "\(path), a table of a LevelDB database, has \(fileSize) bytes instead of \(expected).")
    }
    var reader = LevelDBReader(bytes[...])
    let limit = UInt64(fileSize - size)
    func isInside(_ offset: UInt64?, _ size: UInt64?) -> Bool {
      guard let offset, let size, offset <= limit, size <= limit else { return false }
      return offset + size + UInt64(blockTrailerSize) <= limit
    }
    guard bytes.suffix(magic.count).elementsEqual(magic), isInside(reader.number(), reader.number()),
      isInside(reader.number(), reader.number())
    else {
      throw StorageError(.corrupted, "\(path), a table of a LevelDB database, is corrupted at its end.")
    }
  }
}
