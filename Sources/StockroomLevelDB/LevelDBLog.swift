import StockroomCore

/// A write-ahead log of LevelDB's, read without LevelDB.
///
/// After a failed write, and after a crash, the end of a log is in doubt: LevelDB would take a batch that was never
/// acknowledged for good, or refuse the whole database because of one that was never finished. So the engine itself
/// decides what the last batch is, and cuts off what comes behind.
///
/// The format: <https://github.com/google/leveldb/blob/1.23/doc/log_format.md>
struct LevelDBLog {
  /// A batch: where it ends in the file, and its number, if its last record is a ``Ledger``.
  struct Batch {
    let end: Int
    let generation: UInt64?
  }

  enum Ending {
    /// The last batch ends where the file does.
    case whole
    /// What follows the last batch is the beginning of another one.
    case torn
    /// What follows the last batch is not readable, and other batches come after it.
    case damaged
  }

  private(set) var batches: [Batch] = []
  private(set) var ending = Ending.whole

  private static let blockSize = 32768
  private static let headerSize = 7
  private enum Kind: UInt8 {
    case full = 1
    case first, middle, last
  }

  init(_ bytes: UnsafeRawBufferPointer) {
    var offset = 0
    // The bytes of a batch that is spread over several blocks: the end of it, which is all that matters.
    var open: [UInt8]?
    while true {
      let left = Self.blockSize - offset % Self.blockSize
      if left < Self.headerSize { offset += left }
      if offset >= bytes.count { break }
      guard let (kind, payload) = Self.fragment(in: bytes, at: offset),
        (open == nil) == (kind == .full || kind == .first)
      else {
        ending = Self.batchBegins(in: bytes, after: offset) ? .damaged : .torn
        return
      }
      offset += Self.headerSize + payload.count
      let tail = ((open ?? []) + payload.suffix(Self.tailSize)).suffix(Self.tailSize)
      if kind == .full || kind == .last {
        batches.append(Batch(end: offset, generation: Self.generation(in: Array(tail))))
        open = nil
      } else {
        open = Array(tail)
      }
    }
    if open != nil || bytes.count > (batches.last?.end ?? 0) + Self.headerSize { ending = .torn }
  }

  /// The piece of a batch that begins at the offset, if its checksum is right.
  private static func fragment(
    in bytes: UnsafeRawBufferPointer, at offset: Int
  ) -> (kind: Kind, payload: UnsafeRawBufferPointer)? {
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

  /// Whether a batch begins anywhere behind the offset. Pieces without a beginning do not count: they belong to
  /// the batch whose writing was interrupted, since a disk need not keep the order.
  private static func batchBegins(in bytes: UnsafeRawBufferPointer, after offset: Int) -> Bool {
    for start in (offset + 1)..<max(offset + 1, bytes.count - headerSize) {
      guard bytes[start + 6] == Kind.full.rawValue || bytes[start + 6] == Kind.first.rawValue else {
        continue
      }
      if let (_, payload) = fragment(in: bytes, at: start), !payload.isEmpty { return true }
    }
    return false
  }

  /// The ledger is the last record of each batch: its key, its length, its bytes.
  private static let tailSize = Ledger.key.count + 1 + Ledger.encodedSize

  private static func generation(in tail: [UInt8]) -> UInt64? {
    let lead = Ledger.key + [UInt8(Ledger.encodedSize)]
    guard tail.count == tailSize, tail.starts(with: lead) else { return nil }
    return tail.withUnsafeBytes { bytes in
      let ledger = UnsafeRawBufferPointer(rebasing: bytes[lead.count...])
      return try? Ledger(decoding: ledger, path: "").generation
    }
  }
}

extension LevelDBLog {
  /// After a crash: cuts off a batch that was never finished.
  ///
  /// - Throws: ``StorageError`` with code `corrupted` if batches come behind what cannot be read.
  static func removeTornBatch(at path: String) throws {
    let bytes = try LevelDBFiles.read(path)
    let log = bytes.withUnsafeBytes { LevelDBLog($0) }
    switch log.ending {
    case .whole: return
    case .torn: try LevelDBFiles.truncate(path, to: log.batches.last?.end ?? 0)
    case .damaged:
      throw StorageError(
        .corrupted,
        "\(path), a log of a LevelDB database, is damaged behind byte \(log.batches.last?.end ?? 0).")
    }
  }

  /// After a failed write: cuts off all batches behind the one with this number.
  static func removeBatches(after generation: UInt64, at path: String) throws {
    let bytes = try LevelDBFiles.read(path)
    let log = bytes.withUnsafeBytes { LevelDBLog($0) }
    let end = log.batches.last { $0.generation.map { $0 <= generation } ?? true }?.end ?? 0
    if end < bytes.count { try LevelDBFiles.truncate(path, to: end) }
  }
}
