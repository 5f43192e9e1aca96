import StockroomCLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// An environment that its readers and its one writer share: it moves the map when that is needed and reopens
/// LMDB when LMDB gives up.
final class LMDBEnvironment: @unchecked Sendable {
  // Safe to share: `handle` is replaced only by the thread that writes, while the readers are paused, and read
  // by that thread and by readers that have been counted in. The other variables belong to the thread that writes.
  // close() comes after everybody else, which the gates of the engines see to.

  /// The outcome of an attempt to read.
  enum Attempt<Value> {
    case value(Value)
    /// The map is being moved. Try again after ``LMDBReaders/untilResumed()``.
    case paused
    /// Try again after ``repair()``.
    case needsRepair
    /// No snapshot could be had. Try again for some time.
    case isStale
  }

  /// As in LMDB. A small map keeps small databases small.
  static let initialMapSize = 1 << 20
  /// What the addresses of a 64-bit process have room for, with much to spare.
  private static let maximumMapSize = 1 << 45

  let readers = LMDBReaders()
  let file: LMDBFile
  let lockFile: LMDBLockFile
  let lockTimeout: Duration
  let files: LMDBFiles
  let feed: ChangeFeed
  private(set) var handle: Result<LMDBHandle, StorageError>
  /// Whether this environment has committed anything, so that its number of pages is right.
  private var hasWritten = false
  private var writeCheck: LMDBWriteCheck

  var directory: String { file.directory }

  /// Opens the environment of the file, which the caller has locked.
  init(
    _ file: LMDBFile, _ lockFile: LMDBLockFile, _ permissions: FilePermissions, lockTimeout: Duration
  ) throws {
    self.file = file
    feed = ChangeFeed(logAtPath: file.directory + "/changes.log", permissions)
    self.lockFile = lockFile
    self.lockTimeout = lockTimeout
    files = try LMDBFiles(file, lockFile)
    let handle = try LMDBHandle(file, files)
    self.handle = .success(handle)
    // Room that a process which died has not given back. Where others have the database open, it may be theirs. Nothing that has been
    // written is cut off: that number of pages has no checksum.
    if lockFile.isUnused, (try? handle.isEmptyBehindLastPage()) == true { try? handle.trimFile() }
    writeCheck = LMDBWriteCheck(pageCount: handle.pageCount)
  }

  /// Closes everything. No call of any engine may be under way, and none may follow. Does not wait.
  ///
  /// - Parameter isLocked: Whether the caller has the lock of the file, without which nothing is trimmed.
  func close(isLocked: Bool) {
    feed.finish()
    if case .success(let handle) = handle {
      // Where another process has the database open, it does this when it closes it. No other file is touched.
      if hasWritten || (try? handle.isEmptyBehindLastPage()) == true, isLocked, lockFile.isUnused,
        (try? checkFiles(handle)) != nil
      {
        // The file is as good without.
        try? handle.trimFile()
      }
      readers.drain()
      handle.close()
    }
    handle = .failure(StorageError(.closed, "The LMDB database in \(directory) has been closed."))
    // In this order: the next process may open the database once the lock of the file is free.
    lockFile.close()
    file.close()
    files.close()
  }

  /// Throws unless the files are where they were when they were opened, and as long as they have to be (rule C6).
  private func checkFiles(_ handle: LMDBHandle) throws { try handle.checkLength(try files.check()) }

  /// Throws unless the files are where they were when they were opened.
  func checkFiles() throws { _ = try files.check() }
}

// MARK: Writing, on the one thread that does

extension LMDBEnvironment {
  /// Commits the requests as one transaction, or none of them.
  ///
  /// - Throws: `StorageError`; `AfterCommitError` if the files were found replaced only after the commit (rule C6).
  func commit(_ requests: [LMDBRequest]) throws {
    do {
      // What transactions come to is known only once they have the write lock.
      let known = requests.map(\.request).knownOperations.map(LMDBGroup.init)
      var group = known ?? LMDBGroup(operations: [])
      var size = group.estimatedSize
      if case .failure = handle { try repair() }
      // LMDB looks at the file whatever it is asked for.
      try files.checkWritable()
      try checkFiles(try handle.get())
      // What turns out not to fit has been done for nothing. If there can be no more room, it may fit all the same.
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
      // LMDB may have given up the environment, which readers need too. If it cannot be reopened, their errors say why.
      try? repair()
      throw StorageError.fromTransaction(error, "Writing the LMDB database in \(directory) failed")
    }
  }

  /// - Parameters:
  ///   - known: What the requests come to, if that is known.
  ///   - group: Gets what they come to.
  private func commitOnce(
    _ requests: [LMDBRequest], _ known: LMDBGroup?, _ group: inout LMDBGroup, usesReserve: Bool
  ) throws {
    let handle = try handle.get()
    try handle.setDurability(requests.contains { $0.durability == .full } ? .full : .process)
    let transaction = try handle.beginWriting()
    var announcement: ChangeFeed.Announcement?
    do {
      // Waiting for another process may have taken long.
      try checkFiles(handle)
      try files.checkWritable()
      let number = mdb_txn_id(transaction)
      guard handle.information.me_last_txnid == number - 1 else {
        throw StorageError(
          .io, "\(file.path) has been written without \(lockFile.path), or written over, since it was opened."
        )
      }
      try handle.extendFile(to: handle.mapSize)
      if usesReserve { try handle.releaseReserve() } else { handle.keepReserve() }
      if let known {
        group = known
      } else {
        // No one else can commit, so that the latest snapshot is what the transaction sees.
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
      if !batch.operations.isEmpty {
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
    // What was committed to files that no opening will find is not acknowledged, and nor is what was read of them.
    try AfterCommitError.marking { try checkFiles() }
  }

  /// Commits a transaction that changes nothing, after which LMDB can use the pages that the one before it has left.
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

  /// LMDB reports a write that was cut short, which is what a disk does that becomes full on the way, as EIO.
  private func explained(_ error: any Error, size: Int) -> any Error {
    guard let error = error as? LMDBError, error.code == EIO, case .success(let handle) = handle,
      handle.hasLessRoom(than: size + 1 << 16)
    else { return error }
    return LMDBError(code: ENOSPC)
  }

  /// Makes the map larger, so that the bytes fit in addition to what is there.
  private func makeRoom(forBytes bytes: Int) throws {
    let handle = try handle.get()
    if try handle.clearDeadReaders() { return }
    let old = handle.mapSize
    let needed = old + bytes + Self.initialMapSize
    guard needed <= Self.maximumMapSize else { throw LMDBError(code: MDB_MAP_FULL) }
    do {
      try growMap(of: handle, to: max(2 * old, needed))
    } catch  where needed < 2 * old {
      try growMap(of: handle, to: needed)
    }
  }

  private func growMap(of handle: LMDBHandle, to size: Int) throws {
    // Multiples of every size that a page can have.
    var size = (size + 0xFFFF) & ~0xFFFF
    try handle.checkAddresses(forMapsOf: size)
    do {
      try handle.growFile(to: size)
    } catch let error as LMDBError where error.code == MDB_MAP_RESIZED {
      // Another process has made the database larger than the map, which has to cover that first.
      size = 0
    }
    moveMap(of: handle, to: max(size, try handle.fileSize()))
    _ = try self.handle.get()
  }

  private func moveMap(of handle: LMDBHandle, to size: Int) {
    readers.whilePaused(for: .map) {
      do {
        try handle.setMapSize(size)
      } catch {
        // LMDB has no map now, which no reader may use.
        self.handle = .failure(StorageError(.io, "Mapping \(file.path) failed", underlying: error))
      }
    }
    if case .failure = self.handle { reopen(handle) }
  }

  /// Makes the environment usable again, if it is not: because another process made the database larger than
  /// the map, or because LMDB gave the environment up after a failed write of a meta page.
  func repair() throws {
    guard case .success(let handle) = handle else { return try reopen() }
    try checkFiles(handle)
    try files.checkWritable()
    // LMDB looks for a free place in its table of readers first, and would not say that the map is too small if there is none.
    if handle.unusedMap < 0 {
      moveMap(of: handle, to: try handle.fileSize())
      _ = try self.handle.get()
      return
    }
    let result = handle.probe()
    switch result {
    case MDB_SUCCESS, MDB_READERS_FULL: return
    case MDB_MAP_RESIZED: moveMap(of: handle, to: try handle.fileSize())
    case MDB_PANIC: reopen(handle)
    default:
      throw StorageError.lmdb(LMDBError(code: result), "Reading the LMDB database in \(directory) failed")
    }
    _ = try self.handle.get()
  }

  /// Closes LMDB's environment and opens it again, once no read is under way.
  private func reopen(_ handle: LMDBHandle) {
    readers.whilePaused(for: .transactions) {
      readers.drain()
      // No other process may open the database at the same moment. A process that keeps the lock for so long does not.
      let isLocked = (try? file.lock(timeout: lockTimeout)) != nil
      defer { if isLocked { file.unlock() } }
      handle.close()
      do {
        self.handle = .success(try LMDBHandle(file, files))
      } catch let error as StorageError {
        self.handle = .failure(error)
      } catch {
        self.handle = .failure(
          StorageError(.io, "Opening the LMDB database in \(directory) failed", underlying: error))
      }
    }
  }

  /// Opens the environment that could not be opened before.
  private func reopen() throws {
    let isInPlace = try file.lock(timeout: lockTimeout)
    defer { file.unlock() }
    guard isInPlace else {
      throw StorageError(.io, "\(file.path) has been replaced since it was opened.")
    }
    let handle = try LMDBHandle(file, files)
    readers.whilePaused(for: .transactions) { self.handle = .success(handle) }
  }
}
