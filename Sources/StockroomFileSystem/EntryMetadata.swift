import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The metadata of an entry: when and in which order it was created, and the length of the value when it was
/// written. The time of the last write is the file's own modification time.
struct EntryMetadata: Sendable, Hashable {
  var header: EntryHeader
  var size: Int

  static let encodedSize = EntryHeader.encodedSize + 8

  init(header: EntryHeader, size: Int) {
    self.header = header
    self.size = size
  }

  init?(decoding bytes: UnsafeRawBufferPointer) {
    guard bytes.count == Self.encodedSize, let header = EntryHeader(decoding: bytes) else { return nil }
    self.header = header
    size = Int(
      truncatingIfNeeded: UInt64(
        littleEndian: bytes.loadUnaligned(fromByteOffset: EntryHeader.encodedSize, as: UInt64.self)))
  }

  func withEncoding<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
    try withUnsafeTemporaryAllocation(byteCount: Self.encodedSize, alignment: 8) { bytes in
      header.encode(into: bytes)
      bytes.storeBytes(
        of: UInt64(truncatingIfNeeded: size).littleEndian, toByteOffset: EntryHeader.encodedSize,
        as: UInt64.self)
      return try body(UnsafeRawBufferPointer(bytes))
    }
  }
}

/// The metadata of an entry as an extended attribute of its file.
enum MetadataAttribute {
  #if canImport(Darwin)
    static let name = "stockroom.created"
  #else
    // Linux lets ordinary users set attributes in this name space only.
    static let name = "user.stockroom.created"
  #endif

  /// The metadata, or nil if the file has none of this engine.
  static func read(from file: FileDescriptor) throws -> EntryMetadata? {
    try withUnsafeTemporaryAllocation(byteCount: EntryMetadata.encodedSize, alignment: 8) { bytes in
      let length = SystemCalls.attribute(file.number, name, bytes)
      if length >= 0 { return EntryMetadata(decoding: UnsafeRawBufferPointer(rebasing: bytes[..<length])) }
      switch errno {
      case SystemCalls.noAttribute, ENOTSUP, ERANGE: return nil
      case let error: throw StorageError.posix(error, "Reading an attribute of \(file.path) failed")
      }
    }
  }

  static func write(_ metadata: EntryMetadata, to file: FileDescriptor) throws {
    let error = metadata.withEncoding { SystemCalls.setAttribute(file.number, name, $0) }
    guard error == 0 else { throw StorageError.posix(error, "Writing an attribute of \(file.path) failed") }
  }

  /// Whether the file system supports such attributes, determined by setting one on `file`.
  static func isSupported(by file: FileDescriptor) throws -> Bool {
    if try read(from: file) != nil { return true }
    let probe = EntryMetadata(
      header: EntryHeader(createdAt: Timestamp(nanoseconds: 0), sequence: 0), size: 0)
    let error = probe.withEncoding { SystemCalls.setAttribute(file.number, name, $0) }
    // No space for an attribute now does not mean that the file system does not support them.
    return error == 0 || error == ENOSPC || error == EDQUOT
  }
}
