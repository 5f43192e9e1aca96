import StockroomCLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// An environment that its readers and its one writer share: it moves the map when necessary, and reopens
/// LMDB after LMDB has failed permanently.
final class LMDBEnvironment: @unchecked Sendable {
  // Safe to share: only the writing thread replaces `handle`, while the readers are paused. It is read by that thread,
  // and by readers that have entered. The other variables are used only on the writing thread. close() is called when
  // all calls have ended, which the gates of the engines ensure.

  /// The outcome of an attempt to read.
  enum Attempt<Value> {
    case value(Value)
    /// The map is being moved. Retry after ``LMDBReaders/untilResumed()``.
    case paused
    /// Retry after ``repair()``.
    case needsRepair
    /// No snapshot could be obtained. Retry for some time.
    case isStale
  }

  /// The size of the first map: 1 MiB, LMDB's own default. A small map keeps the file of a small database small.
  static let initialMapSize = 1 << 20
  /// The maximum size of a map: 32 TiB, of which two fit into an address space of 47 bits. Smaller address spaces are
  /// detected when the map grows.
  private static let maximumMapSize = 1 << 45

  let readers = LMDBReaders()
  let file: LMDBFile
  let lockFile: LMDBLockFile
  let lockTimeout: Duration
  let files: LMDBFiles
  let feed: ChangeFeed
  private(set) var handle: Result<LMDBHandle, StorageError>
  /// Whether this environment has committed anything, so that its number of pages is correct.
  var hasWritten = false
  var writeCheck: LMDBWriteCheck

  var directory: String { file.directory }

  /// Opens the environment of the file, which the caller has locked.
  init(
    _ file: LMDBFile, _ lockFile: LMDBLockFile, lockTimeout: Duration
  ) throws {
    self.file = file
    feed = ChangeFeed(logAtPath: file.directory + "/changes.log", like: file.path)
    self.lockFile = lockFile
    self.lockTimeout = lockTimeout
    files = try LMDBFiles(file, lockFile)
    let handle = try LMDBHandle(file, files)
    self.handle = .success(handle)
    // Trims space that a process that died has not returned. If other processes have the database open, it may be
    // theirs. Bytes other than zero are not truncated, since the number of pages has no checksum.
    if lockFile.isUnused, (try? handle.isEmptyBehindLastPage()) == true { try? handle.trimFile() }
    writeCheck = LMDBWriteCheck(pageCount: handle.pageCount)
  }

  /// Closes the environment. No call of any engine may be in progress, and none may follow. Waits only for a check of
  /// the feed that is in progress.
  ///
  /// - Parameter isLocked: Whether the caller holds the lock of the file, without which the file is not
  ///   trimmed.
  func close(isLocked: Bool) {
    feed.finish()
    if case .success(let handle) = handle {
      // If another process has the database open, that process trims the file when it closes. A file that has replaced
      // this one is not changed.
      if hasWritten || (try? handle.isEmptyBehindLastPage()) == true, isLocked, lockFile.isUnused,
        (try? checkFiles(handle)) != nil
      {
        do {
          // Another process may have made the database larger than the map, and then LMDB begins no
          // transaction.
          if handle.unusedMap < 0 { try handle.setMapSize(handle.sizeToMap()) }
          try handle.trimFile()
        } catch {
          // The file is also valid without this. Only closing follows, for which LMDB needs no map.
        }
      }
      readers.drain()
      handle.close()
    }
    handle = .failure(StorageError(.closed, "The LMDB database in \(directory) has been closed."))
    // The file is closed after the lock file: the next process may open the database once the lock of the file is free.
    lockFile.close()
    file.close()
    files.close()
  }

  /// Throws unless the files are where they were when they were opened, and `data.mdb` has the required length (rule
  /// C6).
  func checkFiles(_ handle: LMDBHandle) throws { try handle.checkLength(try files.check()) }

  /// Throws unless the files are where they were when they were opened.
  func checkFiles() throws { _ = try files.check() }
}

// MARK: The map and LMDB's environment, on the one thread that writes

extension LMDBEnvironment {
  /// Clears the slots of readers whose processes have died, which may free pages. If there are none, makes the map
  /// larger, so that the bytes fit in addition to the existing contents.
  func makeRoom(forBytes bytes: Int) throws {
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
    // A multiple of every possible page size.
    var size = (size + 0xFFFF) & ~0xFFFF
    try handle.checkAddresses(forMapsOf: size)
    do {
      try handle.growFile(to: size)
    } catch let error as LMDBError where error.code == MDB_MAP_RESIZED {
      // Another process has made the database larger than the map. The map must cover that size first.
      size = 0
    }
    moveMap(of: handle, to: max(size, try handle.sizeToMap()))
    _ = try self.handle.get()
  }

  private func moveMap(of handle: LMDBHandle, to size: Int) {
    readers.whilePaused(for: .map) {
      do {
        try handle.setMapSize(size)
      } catch {
        // LMDB has no map now, so no reader may use it.
        self.handle = .failure(StorageError(.io, "Mapping \(file.path) failed", underlying: error))
      }
    }
    if case .failure = self.handle { reopen(handle) }
  }

  /// Makes the environment usable again if another process has made the database larger than the map, or if LMDB has
  /// failed permanently after a failed write of a meta page.
  func repair() throws {
    guard case .success(let handle) = handle else { return try reopen() }
    try checkFiles(handle)
    try files.checkWritable()
    // Checked first: LMDB searches for a free slot in its table of readers before it checks the map, and if there is no
    // slot, it does not report that the map is too small.
    if handle.unusedMap < 0 {
      moveMap(of: handle, to: try handle.sizeToMap())
      _ = try self.handle.get()
      return
    }
    let result = handle.probe()
    switch result {
    case MDB_SUCCESS, MDB_READERS_FULL: return
    case MDB_MAP_RESIZED: moveMap(of: handle, to: try handle.sizeToMap())
    case MDB_PANIC: reopen(handle)
    default:
      throw StorageError.lmdb(LMDBError(code: result), "Reading the LMDB database in \(directory) failed")
    }
    _ = try self.handle.get()
  }

  /// Closes LMDB's environment and reopens it, once no read is in progress.
  private func reopen(_ handle: LMDBHandle) {
    readers.whilePaused(for: .transactions) {
      readers.drain()
      // Holds the lock, since no other process may open the database meanwhile. If another process holds the lock for
      // longer than the timeout, it is not opening the database.
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

  /// Reopens an environment that could not be opened before.
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
