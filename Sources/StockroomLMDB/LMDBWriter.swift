import StockroomCLMDB
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The changes of one call.
struct LMDBRequest: Sendable {
  let request: WriteRequest
  let durability: Durability
}

/// The operations of a group of requests, by request.
struct LMDBGroup {
  let operations: [[StorageOperation]]

  /// Whether the database may have fewer entries afterwards.
  var removes: Bool {
    operations.joined().contains { if case .write = $0 { false } else { true } }
  }

  /// An upper bound for the space in the file that the operations need, in bytes. Does not count pages that the
  /// operations free.
  var estimatedSize: Int {
    operations.joined().reduce(0) { sum, operation in
      switch operation {
      // A small entry may leave its page half empty, and changes a leaf and a branch; a large one fills
      // pages.
      case .write(let data, let key): sum + 2 * (data.count + key.value.utf8.count) + 512
      case .remove: sum + 512
      case .removeAll: sum
      }
    }
  }
}

/// The operations of one write transaction, on the thread that writes.
struct LMDBWriter {
  private let transaction: OpaquePointer
  private let main: MDB_dbi
  private let entries: MDB_dbi
  private let cursor: OpaquePointer
  private let now: Timestamp
  private var metadata: LMDBMetadata
  private let metadataAtStart: LMDBMetadata
  /// Whether anything has been changed. LMDB assigns no number to a transaction without changes.
  private(set) var hasChanged = false

  init(transaction: OpaquePointer, main: MDB_dbi, entries: MDB_dbi, now: Timestamp) throws {
    self.transaction = transaction
    self.main = main
    self.entries = entries
    self.now = now
    guard let metadata = try LMDBMetadata(in: transaction, main: main) else { throw LMDBError.corruptedEntry }
    self.metadata = metadata
    metadataAtStart = metadata
    var opened: OpaquePointer?
    try LMDBError.check(mdb_cursor_open(transaction, entries, &opened))
    guard let opened else { throw LMDBError(code: MDB_BAD_TXN) }
    cursor = opened
  }

  // The cursor belongs to the transaction, which closes it when it ends.

  /// Performs the operations. Each one has its own sequence number, so those on existing keys leave gaps.
  mutating func perform(_ batch: SortedBatch) throws {
    if batch.removesAll {
      try LMDBError.check(mdb_drop(transaction, entries, 0))
      hasChanged = true
    }
    let sequence = metadata.lastSequence + 1
    try batch.forEachKey { key, positions in
      for position in positions {
        if case .write(let data, _) = batch.operations[position] {
          try write(
            data, key: MDB_val(key), sequence: sequence + UInt64(position), batch.times(at: position))
        } else {
          try remove(key: MDB_val(key))
        }
      }
    }
    // Stored only if sequence numbers have been used.
    if metadata != metadataAtStart { try metadata.store(in: transaction, main: main) }
  }

  /// Makes the transaction a commit even if it changes nothing.
  mutating func touchMetadata() throws {
    try metadata.store(in: transaction, main: main)
    hasChanged = true
  }

  private mutating func write(
    _ data: Data, key: MDB_val, sequence: UInt64, _ times: EntryTimes?
  ) throws {
    var key = key
    let size = EntryHeader.encodedSize + data.count
    var header = EntryHeader(createdAt: now, sequence: sequence)
    var room = MDB_val(mv_size: size, mv_data: nil)
    // Creating a key, the common case, costs one search. If the key exists, the cursor is on its page afterwards.
    var result = mdb_cursor_put(cursor, &key, &room, UInt32(MDB_NOOVERWRITE | MDB_RESERVE))
    if result == MDB_KEYEXIST {
      header = try LMDBEntry(UnsafeRawBufferPointer(start: room.mv_data, count: room.mv_size)).header()
      header.overwrite(at: now)
      room = MDB_val(mv_size: size, mv_data: nil)
      result = mdb_cursor_put(cursor, &key, &room, UInt32(MDB_RESERVE))
    } else if result == MDB_SUCCESS {
      metadata.lastSequence = max(metadata.lastSequence, sequence)
    }
    try LMDBError.check(result)
    hasChanged = true
    header.replaceTimes(by: times)
    let bytes = UnsafeMutableRawBufferPointer(start: room.mv_data, count: size)
    header.encode(into: bytes)
    data.withUnsafeBytes {
      UnsafeMutableRawBufferPointer(rebasing: bytes[EntryHeader.encodedSize...]).copyMemory(from: $0)
    }
  }

  private mutating func remove(key: MDB_val) throws {
    var key = key
    let result = mdb_del(transaction, entries, &key, nil)
    if result == MDB_NOTFOUND { return }
    try LMDBError.check(result)
    hasChanged = true
  }
}

extension LMDBMetadata {
  /// Reads the metadata of an environment.
  ///
  /// - Returns: Nil if there are other records but no metadata: the environment belongs to another program.
  ///   An empty environment has empty metadata.
  init?(in transaction: OpaquePointer, main: MDB_dbi) throws {
    var flags: UInt32 = 0
    try LMDBError.check(mdb_dbi_flags(transaction, main, &flags))
    // The keys have another order, so searching for the name could read beyond it.
    if flags != 0 { return nil }

    var value = MDB_val()
    let result = Self.withName { name in mdb_get(transaction, main, &name, &value) }
    if result == MDB_NOTFOUND {
      var statistics = MDB_stat()
      try LMDBError.check(mdb_stat(transaction, main, &statistics))
      if statistics.ms_entries > 0 { return nil }
      self.init()
    } else {
      try LMDBError.check(result)
      self.init(decoding: UnsafeRawBufferPointer(start: value.mv_data, count: value.mv_size))
      // Greater numbers would leave no room for new sequence numbers.
      if lastSequence > UInt64(Int64.max) { throw LMDBError.corruptedEntry }
    }
  }

  func store(in transaction: OpaquePointer, main: MDB_dbi) throws {
    var room = MDB_val(mv_size: Self.encodedSize, mv_data: nil)
    let result = Self.withName { name in mdb_put(transaction, main, &name, &room, UInt32(MDB_RESERVE)) }
    try LMDBError.check(result)
    encode(into: UnsafeMutableRawBufferPointer(start: room.mv_data, count: Self.encodedSize))
  }

  private static func withName(_ body: (inout MDB_val) -> Int32) -> Int32 {
    var name = name
    return name.withUTF8 { bytes in
      var value = MDB_val(mv_size: bytes.count, mv_data: UnsafeMutableRawPointer(mutating: bytes.baseAddress))
      return body(&value)
    }
  }
}
