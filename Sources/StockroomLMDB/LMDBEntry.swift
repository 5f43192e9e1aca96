import StockroomCLMDB
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An entry in the map.
struct LMDBEntry {
  private let bytes: UnsafeRawBufferPointer

  init(_ bytes: UnsafeRawBufferPointer) throws(LMDBError) {
    guard bytes.count >= EntryHeader.encodedSize else { throw .corruptedEntry }
    self.bytes = bytes
  }

  /// A copy of the value, which stays valid after the transaction (rule V3).
  var data: Data {
    guard let start = bytes.baseAddress, bytes.count > EntryHeader.encodedSize else { return Data() }
    return Data(bytes: start + EntryHeader.encodedSize, count: bytes.count - EntryHeader.encodedSize)
  }

  /// The size of the value.
  var size: Int { bytes.count - EntryHeader.encodedSize }

  func header() throws -> EntryHeader {
    guard let header = EntryHeader(decoding: bytes) else { throw LMDBError.corruptedEntry }
    return header
  }
}

extension MDB_val {
  /// The bytes as an argument for LMDB, without copying them. LMDB does not change bytes that it only reads.
  init(_ bytes: UnsafeRawBufferPointer) {
    self.init(mv_size: bytes.count, mv_data: UnsafeMutableRawPointer(mutating: bytes.baseAddress))
  }
}

extension CacheKey {
  /// The key that an entry is stored under.
  init(stored bytes: UnsafeRawBufferPointer) throws(LMDBError) {
    guard let key = CacheKey(utf8: bytes) else { throw .corruptedEntry }
    self = key
  }
}
