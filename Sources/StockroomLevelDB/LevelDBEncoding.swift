import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The layout of entries in the database: under the bytes of the key, the 24 bytes of an `EntryHeader` and
/// then the value. One more record, the ``LevelDBMetadata``, sorts after all of them.
enum LevelDBEncoding {
  static func header(_ stored: UnsafeRawBufferPointer, path: String) throws -> EntryHeader {
    guard let header = EntryHeader(decoding: stored) else {
      throw StorageError(
        .corrupted, "An entry of the LevelDB database in \(path) is shorter than its header.")
    }
    return header
  }

  static func value(_ stored: UnsafeRawBufferPointer, path: String) throws -> Data {
    guard stored.count >= EntryHeader.encodedSize else {
      throw StorageError(
        .corrupted, "An entry of the LevelDB database in \(path) is shorter than its header.")
    }
    return Data(UnsafeRawBufferPointer(rebasing: stored[EntryHeader.encodedSize...]))
  }

  static func key(_ stored: UnsafeRawBufferPointer, path: String) throws -> CacheKey {
    guard let key = CacheKey(utf8: stored) else {
      throw StorageError(.corrupted, "A key in the LevelDB database in \(path) is not UTF-8.")
    }
    return key
  }
}

/// The metadata of the whole database. Written again, as the last record, in every batch.
struct LevelDBMetadata: Sendable, Hashable {
  /// The number of entries.
  var count: UInt64 = 0
  /// The sequence number of the next key that is written for the first time.
  var nextSequence: UInt64 = 0
  /// The number of batches that have been written, which identifies the last one.
  var generation: UInt64 = 0

  /// The key of the metadata. No UTF-8 text starts with 0xFF, so no key of an entry is equal or greater.
  static let key: [UInt8] = [firstByte] + Array("metadata".utf8)
  static let firstByte: UInt8 = 0xFF
  /// A key after the metadata. No record has a key from here on.
  static let behind: [UInt8] = [firstByte, firstByte]

  static let format: UInt64 = 1
  /// The maximum of the sequence number and of the generation. It leaves room for further ones.
  static let greatest = UInt64(Int64.max / 2)
  static let encodedSize = 32

  var encoded: [UInt8] {
    [Self.format, count, nextSequence, generation].flatMap { word in
      (0..<8).map { UInt8(truncatingIfNeeded: word >> ($0 * 8)) }
    }
  }

  init() {}

  /// - Throws: `StorageError` with code `corrupted` for another size or impossible numbers, `unsupported` for
  ///   another format.
  init(decoding bytes: UnsafeRawBufferPointer, path: String) throws {
    guard bytes.count == Self.encodedSize else {
      throw StorageError(.corrupted, "The metadata of the LevelDB database in \(path) has the wrong size.")
    }
    func word(_ index: Int) -> UInt64 {
      UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: index * 8, as: UInt64.self))
    }
    guard word(0) == Self.format else {
      throw StorageError(
        .unsupported, "The LevelDB database in \(path) was made by another version of this engine.")
    }
    count = word(1)
    nextSequence = word(2)
    generation = word(3)
    guard count <= nextSequence, max(nextSequence, generation) <= Self.greatest else {
      throw StorageError(.corrupted, "The metadata of the LevelDB database in \(path) is out of range.")
    }
  }
}
