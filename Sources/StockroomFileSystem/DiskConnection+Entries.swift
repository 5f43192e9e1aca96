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

// How one entry is read.
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

  /// A file that has become shorter or longer must not pass for a value (rule F2): it was truncated, or it was not
  /// synced when the machine died, and came back without its contents or without the end of them.
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
    // The file was copied here. It gets the place in the order that its time gives it.
    let sequence = UInt64(max(0, status.modified.nanoseconds))
    return EntryMetadata(
      header: EntryHeader(createdAt: status.modified, sequence: sequence), size: status.size)
  }

  /// The sequence that the entry was given when it was created. Nil if it has none or is absent.
  func recordedSequence(of name: FileName) throws -> UInt64? {
    guard let (file, _) = try entries.open(name) else { return nil }
    let recorded = try (usesAttributes ? MetadataAttribute.read(from: file) : nil) ?? sidecar(of: name)
    return recorded?.header.sequence
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
  /// Some file systems count seconds in 32 bits, at least those before 1970, and keep the first or the last of them, in December 1901 and
  /// January 2038, for what is beyond.
  private static let earliest = Timestamp(nanoseconds: -(1 << 31) * 1_000_000_000)
  private static let latest = Timestamp(nanoseconds: ((1 << 31) - 1) * 1_000_000_000)

  /// With the time that the file says it was written at, after which it may have been edited.
  fileprivate func adjusted(to status: FileStatus) -> EntryMetadata {
    var result = self
    // Some file systems keep whole seconds, or every other one, or as exFAT hundredths. Then ours is the better one.
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
