import StockroomCore

/// A file in LevelDB's log format, read without LevelDB: the write-ahead log, and the manifest.
///
/// After a failed write, and after a crash, the end of a log is uncertain: LevelDB would accept a batch that
/// was never acknowledged, or refuse the whole database because of one that was never finished. So the engine
/// itself determines the last batch, and truncates the log after it.
///
/// The format: <https://github.com/google/leveldb/blob/1.23/doc/log_format.md>
struct LevelDBLog {
  struct Record {
    /// The offset at which the record ends in the file.
    let end: Int
    /// The bytes of the record, or its last ones if fewer were to be kept.
    let content: [UInt8]
    /// The sequence number that LevelDB uses after a batch.
    let nextSequence: UInt64?
  }

  enum Ending {
    /// The last record ends at the end of the file.
    case whole
    /// The last record is followed by the beginning of another one.
    case torn
    /// The last record is followed by unreadable data, and other records come after these.
    case corrupted
  }

  /// The records that are searched for after unreadable data.
  enum Search {
    case nothing
    case anyRecord
    /// Batches. A batch within a value, such as the log of another database, does not count: its sequence
    /// number differs.
    ///
    /// - Parameter sequence: The approximate number that LevelDB gave the first batch of the log.
    case batches(near: UInt64)
  }

  private(set) var records: [Record] = []
  private(set) var ending = Ending.whole

  var end: Int { records.last?.end ?? 0 }

  private static let blockSize = 32768
  private static let headerSize = 7
  /// Stored checksums are masked, so that a checksum over data that contain checksums is not weaker.
  private static let maskDelta: UInt32 = 0xA282_EAD8
  private enum Kind: UInt8 {
    case full = 1
    case first, middle, last
  }

  /// - Parameters:
  ///   - count: The number of bytes to keep of each record, from its end.
  ///   - search: The records that show corruption. Unreadable data without such a record after them count as torn.
  init(_ bytes: UnsafeRawBufferPointer, keeping count: Int = .max, searchingBehindCorruption search: Search) {
    var offset = 0
    // The kept bytes of a record that spans several blocks, and its beginning.
    var unfinished: [UInt8]?
    var head: [UInt8] = []
    while true {
      let left = Self.blockSize - offset % Self.blockSize
      if left < Self.headerSize { offset += left }
      if offset >= bytes.count { break }
      guard let (kind, piece) = Self.piece(of: bytes, at: offset),
        (unfinished == nil) == (kind == .full || kind == .first)
      else {
        let isFollowed =
          switch search {
          case .nothing: false
          case .anyRecord: Self.recordBegins(in: bytes, behind: offset) { _, _ in true }
          case .batches(let first):
            Self.batchBegins(in: bytes, behind: offset, after: records.last?.nextSequence, near: first)
          }
        ending = isFollowed ? .corrupted : .torn
        return
      }
      offset += Self.headerSize + piece.count
      var content = unfinished ?? []
      content.append(contentsOf: piece.suffix(count))
      if content.count > count { content.removeFirst(content.count - count) }
      head.append(contentsOf: piece.prefix(Self.batchHeadSize - head.count))
      if kind == .full || kind == .last {
        let next = head.withUnsafeBytes(Self.sequences).map { $0.first &+ $0.count }
        records.append(Record(end: offset, content: content, nextSequence: next))
        unfinished = nil
        head.removeAll(keepingCapacity: true)
      } else {
        unfinished = content
      }
    }
    if unfinished != nil { ending = .torn }
  }

  /// The fragment of a record that begins at the offset, if its checksum is right.
  private static func piece(
    of bytes: UnsafeRawBufferPointer, at offset: Int
  ) -> (kind: Kind, piece: UnsafeRawBufferPointer)? {
    let left = min(blockSize - offset % blockSize, bytes.count - offset)
    guard left >= headerSize else { return nil }
    let length = Int(bytes[offset + 4]) | Int(bytes[offset + 5]) << 8
    guard headerSize + length <= left, let kind = Kind(rawValue: bytes[offset + 6]) else { return nil }
    let masked = UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    let rotated = masked &- maskDelta
    let checksum = rotated >> 17 | rotated << 15
    let covered = UnsafeRawBufferPointer(rebasing: bytes[(offset + 6)..<(offset + headerSize + length)])
    guard CRC32C.checksum(covered) == checksum else { return nil }
    return (kind, UnsafeRawBufferPointer(rebasing: covered.dropFirst()))
  }

  /// The bytes of a log file that contains only this record.
  static func bytes(of record: [UInt8]) -> [UInt8] {
    let capacity = blockSize - headerSize
    var bytes: [UInt8] = []
    var start = 0
    repeat {
      let end = min(start + capacity, record.count)
      let kind: Kind =
        switch (start == 0, end == record.count) {
        case (true, true): .full
        case (true, false): .first
        case (false, false): .middle
        case (false, true): .last
        }
      let covered = [kind.rawValue] + record[start..<end]
      let checksum = CRC32C.checksum(covered)
      let masked = (checksum >> 15 | checksum << 17) &+ maskDelta
      bytes += (0..<4).map { UInt8(truncatingIfNeeded: masked >> ($0 * 8)) }
      bytes +=
        [UInt8(truncatingIfNeeded: end - start), UInt8(truncatingIfNeeded: (end - start) >> 8)] + covered
      start = end
    } while start < record.count
    return bytes
  }

  /// Whether a record begins anywhere after the offset. Fragments other than the first one of a record do not count:
  /// they belong to the record whose writing was interrupted, since a disk need not write in order.
  ///
  /// - Parameter isRecord: Called with each fragment that looks like the first one of a record, and its offset. Returns
  ///   whether it is one.
  private static func recordBegins(
    in bytes: UnsafeRawBufferPointer, behind offset: Int,
    where isRecord: (_ piece: UnsafeRawBufferPointer, _ start: Int) -> Bool
  ) -> Bool {
    for start in (offset + 1)..<max(offset + 1, bytes.count - headerSize) {
      guard bytes[start + 6] == Kind.full.rawValue || bytes[start + 6] == Kind.first.rawValue else {
        continue
      }
      if let (_, piece) = piece(of: bytes, at: start), !piece.isEmpty, isRecord(piece, start) { return true }
    }
    return false
  }

  /// Whether a batch begins anywhere after the offset.
  ///
  /// - Parameters:
  ///   - sequence: The number that LevelDB gave the record that begins at the offset. Nil if nothing before
  ///     it could be read.
  ///   - first: The approximate number that it gave the first batch of the log.
  private static func batchBegins(
    in bytes: UnsafeRawBufferPointer, behind offset: Int, after sequence: UInt64?, near first: UInt64
  ) -> Bool {
    recordBegins(in: bytes, behind: offset) { piece, start in
      // The beginning of a block is never within a value.
      if start % blockSize == 0 { return true }
      guard let found = sequences(of: piece)?.first else { return false }
      // An operation takes more than a byte.
      if let sequence { return found >= sequence && found - sequence <= UInt64(start - offset) }
      return max(found, first) - min(found, first) <= UInt64(bytes.count)
    }
  }

  /// The number of bytes of a batch before its operations.
  static let batchHeadSize = 12

  /// The sequence number of the first operation of a batch, and the number of operations.
  private static func sequences(of batch: UnsafeRawBufferPointer) -> (first: UInt64, count: UInt64)? {
    guard batch.count >= batchHeadSize else { return nil }
    return (
      UInt64(littleEndian: batch.loadUnaligned(as: UInt64.self)),
      UInt64(UInt32(littleEndian: batch.loadUnaligned(fromByteOffset: 8, as: UInt32.self)))
    )
  }
}

// The write-ahead log: a record is a batch, and each batch ends with the metadata.
extension LevelDBLog {
  /// The corruption of the logs that a crash of a process or of the machine may have caused.
  enum Tolerance {
    /// None: there was no crash.
    case nothing
    /// None to acknowledged batches: the logs were synced. The last batch may be incomplete.
    case unacknowledged
    /// Any page may be missing: they were not synced. A page that never reached the disk cannot be
    /// distinguished from a corrupted one.
    case unsynced
  }

  /// Verifies that the first log that the manifest needs is there, or an earlier one: LevelDB syncs the name of a log
  /// before the manifest that names it, and removes earlier logs only after that.
  ///
  /// - Throws: `StorageError` with code `corrupted`.
  static func verifyPresence(in files: LevelDBFiles, of manifest: LevelDBManifest) throws {
    let first = manifest.logNumber
    let numbers = try LevelDBFileList(in: files).logs.compactMap { LevelDBFileList.number(ofLog: $0) }
    if first == 0 || numbers.contains(where: { $0 <= first }) { return }
    throw StorageError(
      .corrupted, "The LevelDB database in \(files.path) has lost its log \(LevelDBFileList.logName(first)).")
  }

  /// After a crash: keeps the batches in the logs up to the first that is missing or incomplete, and removes
  /// the others.
  ///
  /// Batches are numbered, so a gap between two logs is detected as well. LevelDB begins a new log only when the one
  /// before contains batches.
  ///
  /// - Throws: `StorageError` with code `corrupted` if something is missing that must exist.
  static func recover(
    in files: LevelDBFiles, of manifest: LevelDBManifest, tolerating tolerance: Tolerance
  ) throws {
    let first = manifest.logNumber
    var generation: UInt64?
    var sequence = manifest.lastSequence
    var isComplete = true
    var expected = first
    for name in try LevelDBFileList(in: files).logs {
      guard let number = LevelDBFileList.number(ofLog: name), number >= first else { continue }
      if number > expected, expected == first, first > 0 { isComplete = false }
      expected = number &+ 1

      let bytes = try files.read(name)
      let log = bytes.withUnsafeBytes {
        LevelDBLog(
          $0, keeping: metadataSize,
          searchingBehindCorruption: tolerance == .unsynced ? .nothing : .batches(near: sequence))
      }
      sequence = log.records.last?.nextSequence ?? sequence
      let kept = try log.records.prefix { record in
        guard isComplete else { return false }
        let next = try metadata(in: record.content, path: "\(files.path)/\(name)")?.generation
        if let next, let generation, next != generation + 1 { return false }
        generation = next ?? generation
        return true
      }
      let end = kept.last?.end ?? 0
      if end < bytes.count {
        let isAllowed =
          switch tolerance {
          case .nothing: false
          case .unacknowledged: kept.count == log.records.count && log.ending == .torn
          case .unsynced: true
          }
        guard isAllowed else {
          throw StorageError(
            .corrupted, "\(files.path)/\(name), a log of a LevelDB database, is corrupted after byte \(end).")
        }
        try files.truncate(name, to: end)
      }
      isComplete = isComplete && end == bytes.count && !kept.isEmpty
    }
  }

  /// After a failed write: truncates all batches after the one with this number. A log that LevelDB has removed
  /// contains none of them, since all of its contents are in a table.
  static func removeBatches(after generation: UInt64, from name: String, in files: LevelDBFiles) throws {
    guard let bytes = try files.readIfPresent(name) else { return }
    let log = bytes.withUnsafeBytes {
      LevelDBLog($0, keeping: metadataSize, searchingBehindCorruption: .nothing)
    }
    let kept = try log.records.prefix { record in
      guard let metadata = try Self.metadata(in: record.content, path: files.path) else { return true }
      return metadata.generation <= generation
    }
    let end = kept.last?.end ?? 0
    if end < bytes.count { try files.truncate(name, to: end) }
  }

  /// The key of the metadata, its length, and its bytes.
  static let metadataSize = LevelDBMetadata.key.count + 1 + LevelDBMetadata.encodedSize

  /// The metadata at the end of a batch, if it has any.
  static func metadata(in content: [UInt8], path: String) throws -> LevelDBMetadata? {
    let tail = content.suffix(metadataSize)
    let lead = LevelDBMetadata.key + [UInt8(LevelDBMetadata.encodedSize)]
    guard tail.count == metadataSize, tail.starts(with: lead) else { return nil }
    return try tail.withUnsafeBytes { bytes in
      try LevelDBMetadata(decoding: UnsafeRawBufferPointer(rebasing: bytes[lead.count...]), path: path)
    }
  }
}
