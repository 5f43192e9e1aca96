import StockroomCLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

extension LMDBHandle {
  /// The number of bytes that are committed at a time.
  private static let portion = 32 << 20

  /// Creates a database with the contents of a snapshot, and waits until it is on disk. No other process may know the
  /// path of the directory.
  ///
  /// - Parameter source: The location of the database of the snapshot.
  static func makeCopy(
    of snapshot: LMDBSnapshot, from source: String, in directory: String, _ flag: CancellationFlag
  ) throws {
    let directoryFile = try FileDescriptor.openDirectory(atPath: directory)
    guard try directoryFile.makeFile("data.mdb", .owner) != nil else {
      throw StorageError(.io, "\(directory)/data.mdb was created by another program.")
    }
    try make(in: directory, flags: MDB_NOSYNC) { handle in
      // Sufficient however full the pages of the snapshot are. Unused addresses cost nothing.
      let size = 2 * snapshot.tree.size + LMDBEnvironment.initialMapSize
      try handle.setMapSize((size + 0xFFFF) & ~0xFFFF)
      do {
        try handle.append(snapshot, to: directory, flag)
      } catch {
        throw StorageError.fromTransaction(error, "Reading the LMDB database in \(source) failed")
      }
      try handle.writing(to: directory) { try LMDBError.check(mdb_env_sync(handle.environment, 1)) }
    }
    try directoryFile.openFile("data.mdb", O_RDONLY)?.synchronize()
  }

  /// Throws errors of reading the snapshot unchanged, and a `StorageError` for errors of writing.
  private func append(_ snapshot: LMDBSnapshot, to directory: String, _ flag: CancellationFlag) throws {
    var metadata = LMDBMetadata()
    var transaction: OpaquePointer?
    defer { if let transaction { mdb_txn_abort(transaction) } }
    var size = 0
    func commit() throws {
      guard let full = transaction.take() else { return }
      size = 0
      try LMDBError.check(mdb_txn_commit(full))
    }
    try snapshot.forEachRecord { key, value in
      try flag.check()
      let sequence = try LMDBEntry(value).header().sequence
      // Opening the copy would throw `.corrupted` for a greater number.
      guard sequence <= UInt64(Int64.max) else { throw LMDBError.corruptedEntry }
      metadata.lastSequence = max(metadata.lastSequence, sequence)
      try writing(to: directory) {
        let open = try transaction ?? beginWriting()
        transaction = open
        var (key, value) = (MDB_val(key), MDB_val(value))
        try LMDBError.check(mdb_put(open, entries, &key, &value, UInt32(MDB_APPEND)))
        size += value.mv_size
        if size >= Self.portion { try commit() }
      }
    }
    try writing(to: directory) {
      let last = try transaction ?? beginWriting()
      transaction = last
      try metadata.store(in: last, main: main)
      try commit()
    }
  }

  private func writing(to directory: String, _ work: () throws -> Void) throws {
    do {
      try work()
    } catch let error as LMDBError {
      // LMDB reports EIO if the disk had space for only a part of the write.
      let isFull = error.code == EIO && hasLessRoom(than: Self.portion)
      throw StorageError.lmdb(
        isFull ? LMDBError(code: ENOSPC) : error, "Writing the LMDB database in \(directory) failed")
    }
  }
}
