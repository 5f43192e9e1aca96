import StockroomCore

// The main database of an environment contains two records:
//
// - "entries", the named database: key → EntryHeader, 24 bytes, then the value;
// - "metadata", the metadata below. They are on the same page as the record of the named database, which every commit
//   writes anyway, so updating them costs nothing.

/// What the engine stores about the database as a whole.
struct LMDBMetadata: Sendable, Hashable {
  /// The greatest `EntryHeader.sequence` in use so far. Never decreases, even when all entries are removed.
  var lastSequence: UInt64 = 0

  static let name = "metadata"
  static let entriesName: StaticString = "entries"
  static let encodedSize = 16

  private static let magic: UInt32 = 0x524B_5453  // "STKR"
  private static let version: UInt32 = 1

  init() {}

  /// Decodes the metadata, or returns nil if another program or another version of this engine wrote them.
  init?(decoding bytes: UnsafeRawBufferPointer) {
    guard bytes.count == Self.encodedSize,
      UInt32(littleEndian: bytes.loadUnaligned(as: UInt32.self)) == Self.magic,
      UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: 4, as: UInt32.self)) == Self.version
    else { return nil }
    lastSequence = UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
  }

  /// Stores the metadata in the first 16 bytes of `bytes`, which must be large enough.
  func encode(into bytes: UnsafeMutableRawBufferPointer) {
    bytes.storeBytes(of: Self.magic.littleEndian, as: UInt32.self)
    bytes.storeBytes(of: Self.version.littleEndian, toByteOffset: 4, as: UInt32.self)
    bytes.storeBytes(of: lastSequence.littleEndian, toByteOffset: 8, as: UInt64.self)
  }
}
