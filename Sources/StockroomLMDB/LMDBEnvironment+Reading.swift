import StockroomCLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

// Reading, on any thread.
extension LMDBEnvironment {
  /// Calls `body` with a snapshot if that is possible without waiting.
  func read<Value>(_ body: (LMDBSnapshot) throws -> Value) throws -> Attempt<Value> {
    guard case .reader(var idle) = readers.enter() else { return .paused }
    defer { readers.leave(idle, isInMap: true) }
    do {
      guard case .success(let handle) = handle else { return .needsRepair }
      let isWritable = try files.checkData { try handle.checkLength($0) }
      guard let snapshot = try begin(handle, &idle, isWritable: isWritable) else { return .isStale }
      defer { if let transaction = snapshot.transaction { mdb_txn_reset(transaction) } }
      let value = try body(snapshot)
      if handle.information.me_last_txnid != snapshot.number {
        // Without a transaction, the commit may have overwritten pages of the snapshot.
        if snapshot.transaction == nil { return .isStale }
        // There has been a commit in the meantime: with the lock file of this environment, or with one that has
        // replaced it.
        try files.checkLockFileIfMissing()
      }
      return .value(value)
    } catch {
      if let error = error as? LMDBError, Self.isRepairable(error) { return .needsRepair }
      throw StorageError.fromTransaction(error, "Reading the LMDB database in \(directory) failed")
    }
  }

  /// Begins a long read of a snapshot. Ends with ``end(_:)``.
  func begin() throws -> Attempt<LMDBLongRead> {
    guard case .reader(var idle) = readers.enter() else { return .paused }
    do {
      if case .success(let handle) = handle {
        try handle.checkLength(try files.checkData())
        if let snapshot = try begin(handle, &idle, isWritable: !lockFile.isImmutable) {
          readers.leaveMap()
          return .value(LMDBLongRead(snapshot: snapshot, reader: idle, pageSize: handle.pageSize))
        }
        readers.leave(idle, isInMap: true)
        return .isStale
      }
      readers.leave(idle, isInMap: true)
      return .needsRepair
    } catch {
      readers.leave(idle, isInMap: true)
      if let error = error as? LMDBError, Self.isRepairable(error) { return .needsRepair }
      throw StorageError.fromTransaction(error, "Reading the LMDB database in \(directory) failed")
    }
  }

  /// - Throws: `StorageError` with code `io` if the files are no longer in place, or if the entries that were read may
  ///   not be from one snapshot.
  func checkResult(of read: LMDBLongRead) throws {
    _ = try files.check()
    if read.snapshot.transaction != nil { return }
    let latest = try LMDBFileHeader.newest(of: file.descriptor, path: file.path)
    guard latest.transaction == UInt64(clamping: read.snapshot.number) else {
      throw StorageError(.io, "\(file.path) has been written while it was read without \(lockFile.path).")
    }
  }

  func end(_ read: LMDBLongRead) {
    if let transaction = read.snapshot.transaction { mdb_txn_reset(transaction) }
    readers.leave(read.reader, isInMap: false)
  }

  /// Begins to read: without a transaction while the lock file cannot be written, since nothing can be committed then.
  private func begin(
    _ handle: LMDBHandle, _ idle: inout LMDBReader?, isWritable: Bool
  ) throws -> LMDBSnapshot? {
    if !isWritable { return try handle.latestSnapshot(file) }
    if let snapshot = try handle.begin(&idle) { return snapshot }
    try checkFiles()
    return nil
  }

  static func isRepairable(_ error: LMDBError) -> Bool {
    error.code == MDB_MAP_RESIZED || error.code == MDB_PANIC
  }
}

/// A read transaction that continues while its task yields to others.
struct LMDBLongRead: Sendable {
  let snapshot: LMDBSnapshot
  fileprivate let reader: LMDBReader?
  let pageSize: Int
}
