import StockroomCZlib
import StockroomCore

/// Reads an archive from beginning to end, one block at a time, and verifies that all of it is unchanged.
///
/// Regardless of the lengths in the archive, there is at most one block in memory, and one entry if values
/// are kept. Each step consumes bytes of the input, so reading ends with the input.
struct ArchiveScanner {
  private let input: ArchiveInput
  private var parser: EntryParser
  private var block: [UInt8] = []
  private var contents = [UInt8](repeating: 0, count: ArchiveFormat.blockSize)
  private var blockCount: UInt64 = 0
  private var fileChecksum: UInt32 = 0
  private var contentsChecksum: UInt32 = 0
  private var archiveSize = 0
  private var header: (version: UInt32, flags: UInt32, createdAt: Timestamp)?
  /// The contents of the archive, once its end has been reached and everything has been verified.
  private(set) var summary: ArchiveSummary?
  /// The error of a read whose entries have not been returned to the caller. ``ArchiveReader`` sets it, and throws it
  /// again.
  var failure: (any Error)?

  init(_ input: ArchiveInput, keepsValues: Bool, maximumValueSize: Int) {
    self.input = input
    parser = EntryParser(keepsValues: keepsValues, maximumValueSize: maximumValueSize)
  }

  /// The entries that end in the next block. Nil at the end of the archive.
  ///
  /// - Throws: `StorageError` with code `corrupted` if anything has been changed, `unsupported` if it is not
  ///   an archive or has another version, `valueTooLarge`, `io`.
  mutating func nextEntries() throws -> [StorageEntry]? {
    do {
      return try next()
    } catch let corruption as ArchiveCorruption {
      throw StorageError(.corrupted, "The archive \(input.path) is corrupted: \(corruption.reason).")
    }
  }

  private mutating func next() throws -> [StorageEntry]? {
    if summary != nil { return nil }
    if header == nil { try readHeader() }
    let kind = try read(ArchiveFormat.blockHeaderSize) { $0.number(at: 0, as: UInt32.self) }
    switch kind {
    case ArchiveFormat.blockKind:
      var entries: [StorageEntry] = []
      let size = try readBlock()
      try contents.withUnsafeBytes { contents in
        let bytes = UnsafeRawBufferPointer(rebasing: contents[..<size])
        contentsChecksum = CRC32C.checksum(bytes, after: contentsChecksum)
        try parser.parse(bytes) { entries.append($0) }
      }
      return entries
    case ArchiveFormat.endKind:
      try readEnd()
      return nil
    default: throw ArchiveCorruption("block \(blockCount) has an unknown kind")
    }
  }

  private mutating func readHeader() throws {
    let (isArchive, version) = try read(ArchiveFormat.headerSize) { header in
      (
        header.starts(with: ArchiveFormat.signature),
        header.number(at: ArchiveFormat.signature.count, as: UInt32.self)
      )
    }
    guard isArchive else {
      throw StorageError(.unsupported, "The input \(input.path) is not a Stockroom archive.")
    }
    // Before the checksum, since the header of another version may be longer.
    guard version == ArchiveFormat.version else {
      throw StorageError(
        .unsupported,
        "The archive \(input.path) has format \(version); this version of Stockroom supports format "
          + "\(ArchiveFormat.version).")
    }
    header = try block.withUnsafeBytes { header in
      guard header.hasRightChecksum else { throw ArchiveCorruption("its header has the wrong checksum") }
      let flags = header.number(at: 12, as: UInt32.self)
      guard flags & ~ArchiveFormat.Flags.isSnapshot == 0 else {
        throw StorageError(
          .unsupported,
          "The archive \(input.path) uses features that this version of Stockroom does not support.")
      }
      return (version, flags, Timestamp(nanoseconds: header.number(at: 16)))
    }
    count(block.count)
  }

  /// Reads the rest of a block after its header, and decompresses its contents. Returns their size.
  private mutating func readBlock() throws -> Int {
    let (method, index, size, storedSize) = block.withUnsafeBytes {
      (
        $0.number(at: 4, as: UInt32.self), $0.number(at: 8, as: UInt64.self),
        Int($0.number(at: 16, as: UInt32.self)), Int($0.number(at: 20, as: UInt32.self))
      )
    }
    guard index == blockCount else { throw ArchiveCorruption("block \(blockCount) is missing") }
    guard 1...ArchiveFormat.blockSize ~= size, 1...size ~= storedSize else {
      throw ArchiveCorruption("block \(index) has a wrong size")
    }
    try readMore(storedSize + ArchiveFormat.checksumSize)
    guard block.withUnsafeBytes({ $0.hasRightChecksum }) else {
      throw ArchiveCorruption("block \(index) has the wrong checksum")
    }
    try block.withUnsafeBytes { block in
      let payload = UnsafeRawBufferPointer(
        rebasing: block[ArchiveFormat.blockHeaderSize...].prefix(storedSize))
      try expand(payload, method, to: size)
    }
    count(block.count)
    blockCount += 1
    return size
  }

  private mutating func expand(_ payload: UnsafeRawBufferPointer, _ method: UInt32, to size: Int) throws {
    switch method {
    case ArchiveFormat.Method.stored:
      guard payload.count == size else { throw ArchiveCorruption("block \(blockCount) has a wrong size") }
      contents.withUnsafeMutableBytes { $0.copyMemory(from: payload) }
    case ArchiveFormat.Method.zlib:
      var (done, used) = (uLongf(size), uLong(payload.count))
      let source = payload.baseAddress?.assumingMemoryBound(to: Bytef.self)
      let result = uncompress2(&contents, &done, source, &used)
      if result == Z_MEM_ERROR {
        throw StorageError(.io, "There is not enough memory to decompress a block.")
      }
      guard result == Z_OK, done == size, used == payload.count else {
        throw ArchiveCorruption("block \(blockCount) cannot be decompressed")
      }
    default: throw ArchiveCorruption("block \(blockCount) is compressed by an unknown method")
    }
  }

  private mutating func readEnd() throws {
    guard let header else { return }
    try readMore(ArchiveFormat.endSize - ArchiveFormat.blockHeaderSize)
    let expected = block
    try expected.withUnsafeBytes { end in
      guard end.hasRightChecksum else { throw ArchiveCorruption("its trailer has the wrong checksum") }
      let checked = UnsafeRawBufferPointer(rebasing: end[..<36])
      guard end.number(at: 4, as: UInt32.self) == 0, end.number(at: 8, as: UInt64.self) == blockCount,
        parser.isBetweenEntries, end.number(at: 16, as: UInt64.self) == UInt64(parser.entryCount),
        end.number(at: 24, as: UInt64.self) == UInt64(parser.contentSize),
        end.number(at: 32, as: UInt32.self) == contentsChecksum,
        end.number(at: 36, as: UInt32.self) == CRC32.checksum(checked, after: fileChecksum)
      else { throw ArchiveCorruption("its trailer does not match its contents") }
    }
    count(block.count)
    guard try input.isAtEnd() else { throw ArchiveCorruption("there is data after its trailer") }
    if let (key, size) = parser.tooLargeValue {
      throw StorageError(
        .valueTooLarge,
        "The value of \(key) in the archive \(input.path) has \(size) bytes, which is more than is accepted.")
    }
    summary = ArchiveSummary(
      formatVersion: Int(header.version), createdAt: header.createdAt.date,
      isSnapshot: header.flags & ArchiveFormat.Flags.isSnapshot != 0, entryCount: parser.entryCount,
      contentSize: parser.contentSize, archiveSize: archiveSize)
  }

  // MARK: Bytes

  /// Reads the next part of the file into ``block``.
  private mutating func read<Result>(_ count: Int, _ body: (UnsafeRawBufferPointer) -> Result) throws
    -> Result
  {
    block.removeAll(keepingCapacity: true)
    try readMore(count)
    return block.withUnsafeBytes(body)
  }

  /// Reads more bytes and appends them to ``block``.
  private mutating func readMore(_ count: Int) throws {
    let start = block.count
    block += [UInt8](repeating: 0, count: count)
    let done = try block.withUnsafeMutableBytes {
      try input.read(into: UnsafeMutableRawBufferPointer(rebasing: $0[start...]))
    }
    guard done == count else { throw ArchiveCorruption("it ends too early") }
  }

  /// Adds a part of the file, which is in ``block``, to the size and the checksum.
  private mutating func count(_ size: Int) {
    fileChecksum = block.withUnsafeBytes { CRC32.checksum($0, after: fileChecksum) }
    archiveSize += size
  }
}
