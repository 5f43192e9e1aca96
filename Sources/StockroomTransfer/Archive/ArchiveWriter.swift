import StockroomCZlib
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Creates the bytes of an archive, one block in memory at a time.
struct ArchiveWriter: Sendable {
  private let write: @Sendable (UnsafeRawBufferPointer) throws -> Void
  private let progress: (@Sendable (ArchiveProgress) -> Void)?
  private var block: [UInt8] = []
  private var compressed: [UInt8]
  private var blockCount: UInt64 = 0
  private var fileChecksum: UInt32 = 0
  private var contentsChecksum: UInt32 = 0
  private var summary: ArchiveSummary

  /// - Parameter write: Appends bytes to the archive.
  init(
    isSnapshot: Bool, progress: (@Sendable (ArchiveProgress) -> Void)?,
    write: @escaping @Sendable (UnsafeRawBufferPointer) throws -> Void
  ) throws {
    self.write = write
    self.progress = progress
    let now = Timestamp.now()
    summary = ArchiveSummary(
      formatVersion: Int(ArchiveFormat.version), createdAt: now.date, isSnapshot: isSnapshot,
      entryCount: 0, contentSize: 0, archiveSize: 0)
    block.reserveCapacity(ArchiveFormat.blockSize)
    compressed = [UInt8](repeating: 0, count: ArchiveFormat.blockSize)
    var header = ArchiveFormat.signature
    header.append(number: ArchiveFormat.version)
    header.append(number: isSnapshot ? ArchiveFormat.Flags.isSnapshot : 0)
    header.append(number: now.nanoseconds)
    header.appendChecksum()
    try append(header)
  }

  /// Appends an entry.
  mutating func append(_ entry: StorageEntry) throws {
    try entry.key.validate()
    let keySize = entry.key.value.utf8.count
    var header: [UInt8] = []
    header.append(number: UInt16(keySize))
    header.append(number: UInt64(entry.data.count))
    header.append(number: Timestamp(entry.createdAt, in: ArchiveFormat.times).nanoseconds)
    header.append(number: Timestamp(entry.updatedAt, in: ArchiveFormat.times).nanoseconds)
    try header.withUnsafeBytes { try fill($0) }
    try entry.key.withUTF8 { try fill($0) }
    try entry.data.withUnsafeBytes { try fill($0) }
    summary.entryCount += 1
    summary.contentSize += keySize + entry.data.count
  }

  /// Writes the remaining data and the trailer. Nothing may follow.
  mutating func finish() throws -> ArchiveSummary {
    if !block.isEmpty { try writeBlock() }
    var end: [UInt8] = []
    end.append(number: ArchiveFormat.endKind)
    end.append(number: UInt32(0))
    end.append(number: blockCount)
    end.append(number: UInt64(summary.entryCount))
    end.append(number: UInt64(summary.contentSize))
    end.append(number: contentsChecksum)
    end.append(number: end.withUnsafeBytes { CRC32.checksum($0, after: fileChecksum) })
    end.appendChecksum()
    try append(end)
    return summary
  }

  private mutating func fill(_ bytes: UnsafeRawBufferPointer) throws {
    var rest = bytes
    while !rest.isEmpty {
      let count = min(rest.count, ArchiveFormat.blockSize - block.count)
      block.append(contentsOf: UnsafeRawBufferPointer(rebasing: rest[..<count]))
      rest = UnsafeRawBufferPointer(rebasing: rest[count...])
      if block.count == ArchiveFormat.blockSize { try writeBlock() }
    }
  }

  private mutating func writeBlock() throws {
    contentsChecksum = block.withUnsafeBytes { CRC32C.checksum($0, after: contentsChecksum) }
    // Compressed only if it becomes shorter.
    var count = uLongf(block.count - 1)
    let result = compress2(&compressed, &count, block, uLong(block.count), Z_DEFAULT_COMPRESSION)
    let isStored = result == Z_BUF_ERROR
    guard isStored || result == Z_OK else {
      throw StorageError(.io, "zlib cannot compress \(block.count) bytes (\(result)).")
    }
    let payload = isStored ? block[...] : compressed[..<Int(count)]
    var bytes: [UInt8] = []
    bytes.reserveCapacity(ArchiveFormat.blockHeaderSize + payload.count + ArchiveFormat.checksumSize)
    bytes.append(number: ArchiveFormat.blockKind)
    bytes.append(number: isStored ? ArchiveFormat.Method.stored : ArchiveFormat.Method.zlib)
    bytes.append(number: blockCount)
    bytes.append(number: UInt32(block.count))
    bytes.append(number: UInt32(payload.count))
    bytes.append(contentsOf: payload)
    bytes.appendChecksum()
    try append(bytes)
    blockCount += 1
    block.removeAll(keepingCapacity: true)
    progress?(ArchiveProgress(entryCount: summary.entryCount, contentSize: summary.contentSize))
  }

  private mutating func append(_ bytes: [UInt8]) throws {
    try bytes.withUnsafeBytes { bytes in
      fileChecksum = CRC32.checksum(bytes, after: fileChecksum)
      try write(bytes)
    }
    summary.archiveSize += bytes.count
  }
}
