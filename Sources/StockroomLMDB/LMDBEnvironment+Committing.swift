import StockroomCLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

// Writing, on the one thread that writes.
extension LMDBEnvironment {
  /// Commits the requests as one transaction, or none of them.
  ///
  /// - Throws: `StorageError`; `AfterCommitError` if the files were found replaced only after the commit (rule C6).
  func commit(_ requests: [LMDBRequest]) throws {
    do {
      // The operations of transactions are known only once they hold the write lock.
      let known = requests.map(\.request).knownOperations.map(LMDBGroup.init)
      var group = known ?? LMDBGroup(operations: [])
      var size = group.estimatedSize
      if case .failure = handle { try repair() }
      // LMDB writes to its map of `lock.mdb` in every call, which would raise SIGBUS if that file is immutable.
      try files.checkWritable()
      try checkFiles(try handle.get())
      // Done first: a transaction that turns out not to fit must be repeated. If the map cannot grow, the batch may
      // still fit into free pages.
      if try handle.get().unusedMap < size { try? makeRoom(forBytes: size) }
      var repairs = 0
      var wasFull = false
      var usesReserve = false
      while true {
        do {
          return try commitOnce(requests, known, &group, usesReserve: usesReserve)
        } catch let error as LMDBError where error.code == MDB_MAP_FULL {
          size = group.estimatedSize
          try makeRoom(forBytes: size)
        } catch let error as LMDBError where Self.isRepairable(error) && repairs < 3 {
          repairs += 1
          try repair()
        } catch {
          let error = explained(error, size: size)
          let isFull = (error as? LMDBError)?.code == ENOSPC
          guard isFull, !usesReserve else { throw error }
          if wasFull {
            guard group.removes else { throw error }
            usesReserve = true
          }
          wasFull = true
          try? commitNothing()
        }
      }
    } catch {
      // LMDB may have failed permanently, and readers need the environment too. If it cannot be reopened, their errors
      // state the reason.
      try? repair()
      throw StorageError.fromTransaction(error, "Writing the LMDB database in \(directory) failed")
    }
  }

  /// - Parameters:
  ///   - known: The operations of the requests, if they are known.
  ///   - group: Receives the operations.
  private func commitOnce(
    _ requests: [LMDBRequest], _ known: LMDBGroup?, _ group: inout LMDBGroup, usesReserve: Bool
  ) throws {
    let handle = try handle.get()
    try handle.setDurability(requests.contains { $0.durability == .full } ? .full : .process)
    let transaction = try handle.beginWriting()
    var announcement: ChangeFeed.Announcement?
    do {
      // The files may have been replaced while this waited for the writer of another process.
      try checkIsNext(transaction, of: handle)
      try files.checkWritable()
      try handle.extendFile(to: handle.mapSize)
      if usesReserve { try handle.releaseReserve() } else { handle.keepReserve() }
      if let known {
        group = known
      } else {
        // No other writer can commit, so the latest snapshot is the state that the transaction sees.
        let reader = LMDBEntryReader(snapshot: try handle.latestSnapshot(file), directory: directory)
        group = LMDBGroup(
          operations: requests.map(\.request).operations(reading: reader, LMDBStorageEngine.valueLimit))
      }
      let batch = SortedBatch(
        joining: group.operations, requests.map(\.request).times(of: group.operations))
      try writeCheck.check(batch, in: transaction, of: handle, file)
      var writer = try LMDBWriter(
        transaction: transaction, main: handle.main, entries: handle.entries, now: .now())
      try writer.perform(batch)
      // The bodies of transactions, or a large batch, may have taken long as well.
      if known == nil || batch.operations.count > Self.mostOperationsAtOnce {
        try checkIsNext(transaction, of: handle)
      }
      if !batch.operations.isEmpty {
        // LMDB neither writes nor syncs for a transaction that changes nothing. But the state that the batch found may
        // not have been synced, and the meta page of a failed commit may be on disk in the place of the next one, so that
        // a crash of the machine would undo the former and bring back the latter (rule W6).
        if !writer.hasChanged, requests.contains(where: { $0.durability == .full }) {
          try writer.touchMetadata()
        }
        announcement = feed.announce(
          requests.map(\.request), group.operations, hasNumber: writer.hasChanged
        ) {
          UInt64(clamping: mdb_txn_id(transaction))
        }
      }
    } catch {
      mdb_txn_abort(transaction)
      throw error
    }
    if let announcement {
      do {
        try LMDBError.check(mdb_txn_commit(transaction))
        hasWritten = true
      } catch {
        feed.withdraw(announcement)
        throw error
      }
      feed.publish(announcement)
    } else {
      mdb_txn_abort(transaction)
    }
    // A commit to files that no later opening finds is not acknowledged. Nor is a result that was read from them.
    try AfterCommitError.marking { try checkFiles() }
  }

  /// A batch of more operations than this checks the files twice: at the beginning of the transaction and before its
  /// commit.
  private static let mostOperationsAtOnce = 100

  /// Throws if the files have been replaced, or if another process has committed since the transaction began, which is
  /// possible if the lock file has been replaced: the commit would overwrite the other one (rule C6).
  private func checkIsNext(_ transaction: OpaquePointer, of handle: LMDBHandle) throws {
    try checkFiles(handle)
    guard handle.information.me_last_txnid == mdb_txn_id(transaction) &- 1 else {
      throw StorageError(
        .io, "\(file.path) has been written without \(lockFile.path), or written over, since it was opened.")
    }
  }

  /// Commits a transaction that changes no entry. After it, LMDB can reuse the pages that the previous transaction has
  /// freed.
  private func commitNothing() throws {
    let handle = try handle.get()
    try checkFiles(handle)
    let transaction = try handle.beginWriting()
    do {
      guard let metadata = try LMDBMetadata(in: transaction, main: handle.main) else {
        throw LMDBError.corruptedEntry
      }
      try metadata.store(in: transaction, main: handle.main)
    } catch {
      mdb_txn_abort(transaction)
      throw error
    }
    try LMDBError.check(mdb_txn_commit(transaction))
    hasWritten = true
  }

  /// LMDB reports a write that was cut short, as happens when a disk becomes full during the write, as EIO.
  private func explained(_ error: any Error, size: Int) -> any Error {
    guard let error = error as? LMDBError, error.code == EIO, case .success(let handle) = handle,
      handle.hasLessRoom(than: size + 1 << 16)
    else { return error }
    return LMDBError(code: ENOSPC)
  }
}
