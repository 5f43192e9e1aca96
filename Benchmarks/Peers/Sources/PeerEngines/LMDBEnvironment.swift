import Foundation
import PeerLMDB
import StockroomCore

/// An LMDB environment with the unnamed database and a map of fixed, sufficient size.
///
/// A process must not open an environment twice at the same time, which is not checked.
final class LMDBEnvironment {
  private let environment: OpaquePointer
  private let database: MDB_dbi
  /// Reset after each use and renewed for the next, with its cursor.
  private let reader, cursor: OpaquePointer

  init(path: String, durability: Durability) throws {
    var created: OpaquePointer?
    try Self.check(mdb_env_create(&created))
    guard let environment = created else { throw StorageError.peer("LMDB has returned no environment.") }
    do {
      try Self.check(mdb_env_set_mapsize(environment, 16 << 30))
      // Without the flag a commit also syncs the meta page, not only its data pages.
      let flags = MDB_NOTLS | (durability == .full ? 0 : MDB_NOMETASYNC)
      try Self.check(mdb_env_open(environment, path, UInt32(flags), 0o644))
      var reader: OpaquePointer?
      try Self.check(mdb_txn_begin(environment, nil, UInt32(MDB_RDONLY), &reader))
      var database: MDB_dbi = 0
      try Self.check(mdb_dbi_open(reader, nil, 0, &database))
      var cursor: OpaquePointer?
      try Self.check(mdb_cursor_open(reader, database, &cursor))
      guard let reader, let cursor else { throw StorageError.peer("LMDB has returned no transaction.") }
      mdb_txn_reset(reader)
      (self.database, self.reader, self.cursor) = (database, reader, cursor)
    } catch {
      mdb_env_close(environment)
      throw error
    }
    self.environment = environment
  }

  deinit {
    mdb_cursor_close(cursor)
    mdb_txn_abort(reader)
    mdb_env_close(environment)
  }

  static func check(_ result: Int32) throws {
    guard result == MDB_SUCCESS else { throw StorageError.peer(String(cString: mdb_strerror(result))) }
  }

  // MARK: Reading

  func reading<Result>(_ body: () throws -> Result) throws -> Result {
    try Self.check(mdb_txn_renew(reader))
    defer { mdb_txn_reset(reader) }
    return try body()
  }

  /// Within `reading`, or in a transaction that writes.
  func get(_ key: CacheKey, in transaction: OpaquePointer? = nil) throws -> Data? {
    try key.withBytes { key in
      var key = MDB_val(key)
      var value = MDB_val()
      let result = mdb_get(transaction ?? reader, database, &key, &value)
      if result == MDB_NOTFOUND { return nil }
      try Self.check(result)
      return value.data
    }
  }

  /// Within `reading`: calls `body` in the order of keys, beginning at `start`, until it returns false.
  func forEach(from start: [UInt8], _ body: (_ key: UnsafeRawBufferPointer, _ value: MDB_val) -> Bool) throws
  {
    try Self.check(mdb_cursor_renew(reader, cursor))
    var key = MDB_val()
    var value = MDB_val()
    var result =
      start.isEmpty
      ? mdb_cursor_get(cursor, &key, &value, MDB_FIRST)
      : start.withUnsafeBytes {
        key = MDB_val($0)
        return mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE)
      }
    while result == MDB_SUCCESS {
      guard body(UnsafeRawBufferPointer(start: key.mv_data, count: key.mv_size), value) else { return }
      result = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)
    }
    if result != MDB_NOTFOUND { try Self.check(result) }
  }

  func count() throws -> Int {
    var statistics = MDB_stat()
    try Self.check(mdb_stat(reader, database, &statistics))
    return statistics.ms_entries
  }

  // MARK: Writing

  func writing<Result>(_ body: (OpaquePointer) throws -> Result) throws -> Result {
    var begun: OpaquePointer?
    try Self.check(mdb_txn_begin(environment, nil, 0, &begun))
    guard let transaction = begun else { throw StorageError.peer("LMDB has returned no transaction.") }
    let result: Result
    do {
      result = try body(transaction)
    } catch {
      mdb_txn_abort(transaction)
      throw error
    }
    try Self.check(mdb_txn_commit(transaction))
    return result
  }

  func put(_ data: Data, _ key: CacheKey, in transaction: OpaquePointer) throws {
    try key.withBytes { key in
      try data.withUnsafeBytes { data in
        var key = MDB_val(key)
        var value = MDB_val(data)
        try Self.check(mdb_put(transaction, database, &key, &value, 0))
      }
    }
  }

  func delete(_ key: CacheKey, in transaction: OpaquePointer) throws {
    try key.withBytes { key in
      var key = MDB_val(key)
      let result = mdb_del(transaction, database, &key, nil)
      if result != MDB_NOTFOUND { try Self.check(result) }
    }
  }

  func deleteAll(in transaction: OpaquePointer) throws { try Self.check(mdb_drop(transaction, database, 0)) }
}

extension MDB_val {
  /// LMDB does not modify the bytes.
  fileprivate init(_ bytes: UnsafeRawBufferPointer) {
    self.init(mv_size: bytes.count, mv_data: UnsafeMutableRawPointer(mutating: bytes.baseAddress))
  }

  /// A copy of the bytes.
  var data: Data { mv_size > 0 ? Data(bytes: mv_data, count: mv_size) : Data() }
}
