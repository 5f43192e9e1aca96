#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import StockroomCore

// Reads of single entries.
extension DiskConnection {
  /// The value of the entry. Nil if it is absent.
  func value(of name: FileName) throws -> Data? {
    guard let (file, status) = try entries.open(name) else { return nil }
    try checkSize(of: file, status)
    return try file.readData(size: status.size)
  }

  /// The value of the entry with its metadata. Nil if it is absent.
  func valueAndHeader(of name: FileName) throws -> (data: Data, header: EntryHeader)? {
    guard let (file, status) = try entries.open(name) else { return nil }
    try checkSize(of: file, status)
    let header = try metadata(of: file, status, name).header
    return (try file.readData(size: status.size), header)
  }

  /// The metadata of the entry. Nil if it is absent.
  func metadata(of name: FileName) throws -> EntryMetadata? {
    guard let (file, status) = try entries.open(name) else { return nil }
    return try metadata(of: file, status, name)
  }

  /// A file that has become shorter or longer must not be returned as a value (rule F2): it was truncated, or
  /// it was not synced before a crash of the machine, and has lost its contents or their end.
  private func checkSize(of file: FileDescriptor, _ status: FileStatus) throws {
    guard usesAttributes, let recorded = try MetadataAttribute.read(from: file), recorded.size != status.size
    else {
      return
    }
    throw StorageError(
      .corrupted,
      "\(file.path) has \(status.size) bytes and was written with \(recorded.size). Writing or removing the key puts it "
        + "right; so does, if the file was edited on purpose, removing its attribute \(MetadataAttribute.name)."
    )
  }

  func metadata(of file: FileDescriptor, _ status: FileStatus, _ name: FileName) throws
    -> EntryMetadata
  {
    if usesAttributes, let recorded = try MetadataAttribute.read(from: file) {
      return recorded.adjusted(to: status)
    }
    if let recorded = try sidecar(of: name) { return recorded.adjusted(to: status) }
    // Another program has put the file here. Its modification time determines its position in the order.
    let sequence = UInt64(max(0, status.modified.nanoseconds))
    return EntryMetadata(
      header: EntryHeader(createdAt: status.modified, sequence: sequence), size: status.size)
  }

  /// The sequence number that the entry got when it was created. Nil if it has none, is absent, or may not be read.
  func recordedSequence(of name: FileName) throws -> UInt64? {
    do {
      guard let (file, _) = try entries.open(name) else { return nil }
      let recorded = try (usesAttributes ? MetadataAttribute.read(from: file) : nil) ?? sidecar(of: name)
      return recorded?.header.sequence
    } catch let error as StorageError where error.code == .permissionDenied {
      return nil
    }
  }

  private func sidecar(of name: FileName) throws -> EntryMetadata? {
    guard let (file, _) = try sidecars?.open(name) else { return nil }
    return try withUnsafeTemporaryAllocation(byteCount: EntryMetadata.encodedSize, alignment: 8) { bytes in
      let count = try file.read(into: bytes)
      return EntryMetadata(decoding: UnsafeRawBufferPointer(rebasing: bytes[..<count]))
    }
  }
}

extension EntryMetadata {
  /// Some file systems store seconds in 32 bits, some of them only for times before 1970, and store times outside that range as
  /// its first or last second, in December 1901 and January 2038.
  private static let earliest = Timestamp(nanoseconds: -(1 << 31) * 1_000_000_000)
  private static let latest = Timestamp(nanoseconds: ((1 << 31) - 1) * 1_000_000_000)

  /// The metadata with the modification time of the file, which another program may have edited later.
  fileprivate func adjusted(to status: FileStatus) -> EntryMetadata {
    var result = self
    // Some file systems round times to one or two seconds, and exFAT to hundredths of a second. The recorded time is more precise
    // then.
    let modified = status.modified.nanoseconds
    let difference = header.updatedAt.nanoseconds &- modified
    let isRounded =
      modified % 1_000_000_000 == 0 && (0..<2_000_000_000).contains(difference)
      || modified % 10_000_000 == 0 && (0..<10_000_000).contains(difference)
    let isTooEarly = status.modified == Self.earliest && header.updatedAt < Self.earliest
    let isTooLate = status.modified == Self.latest && header.updatedAt > Self.latest
    if !isRounded, !isTooEarly, !isTooLate { result.header.updatedAt = status.modified }
    result.header.createdAt = min(header.createdAt, result.header.updatedAt)
    return result
  }
}
