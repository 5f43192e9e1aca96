import CLMDB
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A snapshot of the entries: a read transaction of LMDB that is under way.
///
/// What it hands out points into LMDB's map and is valid only while the transaction lasts.
struct LMDBSnapshot {
  let transaction: OpaquePointer
  let entries: MDB_dbi

  /// The header and the value of the key in one piece, or nil if it is absent. O(log N).
  func entry(of key: CacheKey) throws -> LMDBEntry? {
    var value = MDB_val()
    let result = key.withMDBValue { key in mdb_get(transaction, entries, &key, &value) }
    if result == MDB_NOTFOUND { return nil }
    try LMDBError.check(result)
    return try LMDBEntry(value)
  }

  /// The number of entries. O(1).
  func count() throws -> Int {
    var statistics = MDB_stat()
    try LMDBError.check(mdb_stat(transaction, entries, &statistics))
    return statistics.ms_entries
  }

  /// Calls `body` for the entries in byte order of keys, from the first key that is not before `start`, until
  /// it returns false. O(log N + visited).
  ///
  /// - Throws: `CancellationError` once the task has been cancelled (rule C4).
  func forEach(
    from start: [UInt8] = [], _ body: (_ key: UnsafeRawBufferPointer, _ entry: LMDBEntry) throws -> Bool
  ) throws {
    var opened: OpaquePointer?
    try LMDBError.check(mdb_cursor_open(transaction, entries, &opened))
    guard let cursor = opened else { return }
    defer { mdb_cursor_close(cursor) }

    var key = MDB_val()
    var value = MDB_val()
    // LMDB has no empty key to look for.
    var result =
      start.isEmpty
      ? mdb_cursor_get(cursor, &key, &value, MDB_FIRST)
      : start.withUnsafeBytes {
        // A key longer than any that is stored compares as well as others: the search only reads it.
        key = MDB_val(mv_size: $0.count, mv_data: UnsafeMutableRawPointer(mutating: $0.baseAddress))
        return mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE)
      }
    var visited = 0
    while result == MDB_SUCCESS {
      visited += 1
      if visited.isMultiple(of: 1000) { try Task.checkCancellation() }
      let bytes = UnsafeRawBufferPointer(start: key.mv_data, count: key.mv_size)
      guard try body(bytes, LMDBEntry(value)) else { return }
      result = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)
    }
    if result != MDB_NOTFOUND { throw LMDBError(code: result) }
  }
}

/// An entry in LMDB's map.
struct LMDBEntry {
  private let bytes: UnsafeRawBufferPointer

  init(_ value: MDB_val) throws(LMDBError) {
    guard value.mv_size >= EntryHeader.encodedSize, value.mv_data != nil else { throw .damagedEntry }
    bytes = UnsafeRawBufferPointer(start: value.mv_data, count: value.mv_size)
  }

  /// A copy of the value, which outlives the transaction (rule V3).
  var data: Data {
    guard let start = bytes.baseAddress, bytes.count > EntryHeader.encodedSize else { return Data() }
    return Data(bytes: start + EntryHeader.encodedSize, count: bytes.count - EntryHeader.encodedSize)
  }

  func header() throws -> EntryHeader {
    guard let header = EntryHeader(decoding: bytes) else { throw LMDBError.damagedEntry }
    return header
  }
}

extension MDB_val {
  /// The bytes as LMDB wants them, where they are. It does not change what it is given to read.
  init(_ bytes: UnsafeRawBufferPointer) {
    self.init(mv_size: bytes.count, mv_data: UnsafeMutableRawPointer(mutating: bytes.baseAddress))
  }
}

extension CacheKey {
  /// Calls `body` with the bytes of the key as LMDB wants them, which does not change them.
  func withMDBValue<Result>(_ body: (inout MDB_val) throws -> Result) rethrows -> Result {
    try withUTF8 { bytes in
      var value = MDB_val(bytes)
      return try body(&value)
    }
  }

  /// The key that an entry is stored under.
  init(stored bytes: UnsafeRawBufferPointer) throws(LMDBError) {
    guard let key = CacheKey(utf8: bytes) else { throw .damagedEntry }
    self = key
  }
}
