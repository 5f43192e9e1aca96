import StockroomCore

/// A file in LevelDB's log format, read without LevelDB: the write-ahead log, and the manifest.
///
/// After a failed write, and after a crash, the end of a log is in doubt: LevelDB would take a batch that was never
/// acknowledged for good, or refuse the whole database because of one that was never finished. So the engine itself
/// decides what the last batch is, and cuts off what comes behind.
///
/// The format: <https://github.com/google/leveldb/blob/1.23/doc/log_format.md>
struct LevelDBLog {
  struct Record {
    /// Where the record ends in the file.
    let end: Int
    /// The last bytes of the record.
    let content: [UInt8]
  }

  enum Ending {
    /// The last record ends where the file does.
    case whole
    /// What follows the last record is the beginning of another one.
    case torn
    /// What follows the last record is not readable, and other records come after it.
    case damaged
  }

  private(set) var records: [Record] = []
  private(set) var ending = Ending.whole

  var end: Int { records.last?.end ?? 0 }

  private static let blockSize = 32768
  private static let headerSize = 7
  private enum Kind: UInt8 {
    case full = 1
    case first, middle, last
  }

  /// - Parameter count: How many bytes to keep of each record, from its end.
  init(_ bytes: UnsafeRawBufferPointer, keeping count: Int = .max) {
    var offset = 0
    // What is kept of a record that is spread over several blocks.
    var unfinished: [UInt8]?
    while true {
      let left = Self.blockSize - offset % Self.blockSize
      if left < Self.headerSize { offset += left }
      if offset >= bytes.count { break }
      guard let (kind, piece) = Self.piece(of: bytes, at: offset),
        (unfinished == nil) == (kind == .full || kind == .first)
      else {
        ending = Self.recordBegins(in: bytes, behind: offset) ? .damaged : .torn
        return
      }
      offset += Self.headerSize + piece.count
      var content = unfinished ?? []
      content.append(contentsOf: piece.suffix(count))
      if content.count > count { content.removeFirst(content.count - count) }
      if kind == .full || kind == .last {
        records.append(Record(end: offset, content: content))
        unfinished = nil
      } else {
        unfinished = content
      }
    }
    if unfinished != nil { ending = .torn }
  }

  /// The piece of a record that begins at the offset, if its checksum is right.
  private static func piece(
    of bytes: UnsafeRawBufferPointer, at offset: Int
  ) -> (kind: Kind, piece: UnsafeRawBufferPointer)? {
    let left = min(blockSize - offset % blockSize, bytes.count - offset)
    guard left >= headerSize else { return nil }
    let length = Int(bytes[offset + 4]) | Int(bytes[offset + 5]) << 8
    guard headerSize + length <= left, let kind = Kind(rawValue: bytes[offset + 6]) else { return nil }
    let masked = UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    // Stored checksums are masked, so that a checksum over data with checksums in it is no weaker.
    let rotated = masked &- 0xA282_EAD8
    let checksum = rotated >> 17 | rotated << 15
    let covered = UnsafeRawBufferPointer(rebasing: bytes[(offset + 6)..<(offset + headerSize + length)])
    guard CRC32C.checksum(covered) == checksum else { return nil }
    return (kind, UnsafeRawBufferPointer(rebasing: covered.dropFirst()))
  }

  /// Whether a record begins anywhere behind the offset. Pieces without a beginning do not count: they belong to
  /// the record whose writing was interrupted, since a disk need not keep the order.
  private static func recordBegins(in bytes: UnsafeRawBufferPointer, behind offset: Int) -> Bool {
    for start in (offset + 1)..<max(offset + 1, bytes.count - headerSize) {
      guard bytes[start + 6] == Kind.full.rawValue || bytes[start + 6] == Kind.first.rawValue else {
        continue
      }
      if let (_, piece) = piece(of: bytes, at: start), !piece.isEmpty { return true }
    }
    return false
  }
}

// The write-ahead log: a record is a batch, and the last thing in each batch is the ledger.
extension LevelDBLog {
  /// After a crash: cuts off a batch that was never finished.
  ///
  /// - Throws: `StorageError` with code `corrupted` if batches come behind what cannot be read.
  static func removeTornBatch(at path: String) throws {
    let log = try LevelDBFiles.read(path).withUnsafeBytes { LevelDBLog($0, keeping: 0) }
    switch log.ending {
    case .whole: return
    case .torn: try LevelDBFiles.truncate(path, to: log.end)
    case .damaged:
      throw StorageError(
        .corrupted, "\(path), a log of a LevelDB database, is damaged behind byte \(log.end).")
    }
  }

  /// After a failed write: cuts off all batches behind the one with this number. None is in a log that is gone, since
  /// LevelDB has put all of it into a table.
  static func removeBatches(after generation: UInt64, at path: String) throws {
    guard let bytes = try LevelDBFiles.readIfPresent(path) else { return }
    let log = bytes.withUnsafeBytes { LevelDBLog($0, keeping: ledgerSize) }
    let kept = try log.records.prefix { record in
      guard let ledger = try Self.ledger(in: record.content, path: path) else { return true }
      return ledger.generation <= generation
    }
    let end = kept.last?.end ?? 0
    if end < bytes.count { try LevelDBFiles.truncate(path, to: end) }
  }

  /// The key of the ledger, its length, and its bytes.
  private static let ledgerSize = Ledger.key.count + 1 + Ledger.encodedSize

  private static func ledger(in tail: [UInt8], path: String) throws -> Ledger? {
    let lead = Ledger.key + [UInt8(Ledger.encodedSize)]
    guard tail.count == ledgerSize, tail.starts(with: lead) else { return nil }
    return try tail.withUnsafeBytes { bytes in
      try Ledger(decoding: UnsafeRawBufferPointer(rebasing: bytes[lead.count...]), path: path)
    }
  }
}
