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
  /// How many bytes are committed at a time.
  private static let portion = 32 << 20

  /// Makes a database of what a snapshot holds in a directory that no other process has the path of, and waits until it is on the
  /// disk.
  ///
  /// - Parameter source: Where the database of the snapshot is.
  static func makeCopy(
    of snapshot: LMDBSnapshot, from source: String, in directory: String, _ flag: CancellationFlag
  ) throws {
    let directoryFile = try FileDescriptor.openDirectory(atPath: directory)
    guard try directoryFile.makeFile("data.mdb", .owner) != nil else {
      throw StorageError(.io, "\(directory)/data.mdb has been made by another program.")
    }
    try make(in: directory, flags: MDB_NOSYNC) { handle in
      // Room for all of it, whatever the pages of the snapshot are filled to: addresses cost nothing.
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

  /// Throws what reading the snapshot throws as it is, and for what writing throws a `StorageError`.
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
      // Beyond what opening the copy accepts.
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
      // LMDB says EIO if there was room for a part of what it wrote.
      let isFull = error.code == EIO && hasLessRoom(than: Self.portion)
      throw StorageError.lmdb(
        isFull ? LMDBError(code: ENOSPC) : error, "Writing the LMDB database in \(directory) failed")
    }
  }
}
