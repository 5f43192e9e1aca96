import StockroomCore

/// The connection that writes, on the engine's own thread. It also ensures that commits are visible to all connections, that the
/// log stays short, and that unused space is returned to the disk.
final class SQLiteCommitter: Sendable {
  private struct State {
    /// The state after the last transaction, if it is known.
    var metadata: SQLiteMetadata?
    /// If the log has at least this many pages, the engine waits for the readers of the log, so that it can start over.
    var logLimit = SQLiteCommitter.logLimit
    /// Whether the database becomes smaller when its log is checkpointed.
    var isShrinkingPending = false
    /// Whether a commit that has failed may be in the log behind the last one, where a recovery of the log after a crash
    /// would find it and treat it as committed (rules W6, F4).
    var isFailedCommitInLog = false
  }

  /// If the log has at least this many pages, they are checkpointed into the database: SQLite's own default.
  private static let pagesPerCheckpoint = 1_000
  /// If the log has at least this many pages, 16 MiB, it starts over, even if that requires waiting.
  private static let logLimit = 4_096
  /// How long to wait then, for each multiple of that number of pages.
  private static let timePerLimit = Duration.milliseconds(250)

  private let connection: SQLiteConnection
  private let files: SQLiteFiles
  private let feed: ChangeFeed
  private let state = MutexProtected(State())

  init(on connection: SQLiteConnection, _ files: SQLiteFiles, _ feed: ChangeFeed) {
    self.connection = connection
    self.files = files
    self.feed = feed
  }

  /// Commits the requests, in this order, together. If there is not enough space, the log starts over and they are retried once,
  /// since the space of the log itself may suffice: so removals work on a full disk, unless the database must grow first.
  ///
  /// - Throws: `StorageError`; `AfterCommitError` if the files were replaced during the commit, so that the transaction has been
  ///   committed to files that are no longer in place (rule C6).
  func commit(_ requests: [WriteRequest]) throws {
    // Sorted before the database is locked, unless there are transactions, which must read it first.
    let known = requests.knownOperations.map { ($0, SortedBatch(joining: $0, requests.times(of: $0))) }
    var removesAll = false
    do {
      removesAll = try commit(requests, known)
    } catch let error as StorageError where error.code == .diskFull {
      guard (try? connection.restartLog(waiting: .zero)) != nil else { throw error }
      removesAll = try commit(requests, known)
    }
    if removesAll { returnFreePages() }
  }

  /// - Returns: Whether all existing entries have been removed.
  private func commit(
    _ requests: [WriteRequest], _ knownBatch: (operations: [[StorageOperation]], batch: SortedBatch)?
  ) throws -> Bool {
    try state.withLock { state in
      // Not kept if the transaction fails, since it is then unknown which changes remain.
      let known = state.metadata.take()
      var announcement: ChangeFeed.Announcement?
      var left: SQLiteMetadata
      let removesAll: Bool
      // Whether a single transaction failed to read and changes nothing, so that the caller gets the result
      // of its body.
      var hasNothingToDo = false
      // Whether everything but the commit itself has been done.
      var isCommitting = false
      // Whether the transaction writes a commit to the log, which overwrites one that has failed before.
      var writesLog = false
      do {
        (left, removesAll) = try connection.transaction(.beginWriting) {
          var transaction = try SQLiteWriter(on: connection, knowing: known)
          let operations =
            knownBatch?.operations
            ?? requests.operations(reading: SQLiteEntryReader(connection: connection), nil)
          guard connection.isInTransaction else {
            hasNothingToDo = requests.count == 1 && operations.allSatisfy(\.isEmpty)
            throw connection.endedTransaction
          }
          let batch = knownBatch?.batch ?? SortedBatch(joining: operations, requests.times(of: operations))
          let changesBefore = connection.changeCount
          let left = try transaction.perform(batch)
          if !batch.operations.isEmpty {
            // For a transaction that changes nothing, SQLite writes and syncs no commit. But the state that the batch found may
            // be a commit that no connection has synced yet (rule W6), and the log may contain a failed commit that a recovery
            // would apply over the removals. So this forces a commit.
            if !batch.removesAll, connection.changeCount == changesBefore {
              try connection.run(.skipSequence)
            }
            writesLog = true
          }
          // Do not write to files that have been replaced, or that an engine opened later would not find.
          try files.check()
          if writesLog {
            announcement = feed.announce(requests, operations) { try connection.commitNumber() + 1 }
          }
          isCommitting = true
          return (left, batch.removesAll)
        }
      } catch {
        if let announcement { feed.withdraw(announcement) }
        if isCommitting, !error.isFullBeforeCommit { state.isFailedCommitInLog = true }
        try files.check(isThorough: true)
        if hasNothingToDo { return false }
        // Not after every error: on a full disk, the commits that overwrite would use up the log's remaining space, in which entries can
        // still be removed.
        if isCommitting, state.isFailedCommitInLog { overwriteFailedCommit(&state) }
        throw error
      }
      if writesLog { state.isFailedCommitInLog = false }
      if let announcement { feed.publish(announcement) }
      // Do not acknowledge the commit if the files were replaced during it (rule C6).
      try AfterCommitError.marking { try files.check(isThorough: true) }
      // The transaction has been committed, and an error here must not say otherwise.
      if let version = try? connection.dataVersion() {
        left.version = version
        state.metadata = left
      }
      return removesAll
    }
  }

  /// Overwrites a failed commit in the log with a commit that changes no entry. If only its sync has failed, the failed commit is
  /// in the log completely.
  private func overwriteFailedCommit(_ state: inout State) {
    do {
      try connection.transaction(.beginWriting) { try connection.run(.skipSequence) }
      state.isFailedCommitInLog = false
    } catch {
      // If the sync of this commit has failed as well, the commit has still overwritten the failed one, but may be lost in a
      // crash of the machine. If it could not be written, the next commit overwrites the failed one, or `close()` does.
    }
  }

  /// Runs a transaction of an engine that only reads.
  ///
  /// - Throws: `StorageError` with code `readOnly` if it changes anything.
  func runReadOnly(_ request: WriteRequest) throws {
    let operations = try connection.transaction(.beginReading) {
      [request].operations(reading: SQLiteEntryReader(connection: connection), nil)
    }
    try files.check(isThorough: true)
    guard operations.allSatisfy(\.isEmpty) else {
      throw StorageError(.readOnly, "The database \(connection.path) was opened as read-only.")
    }
  }

  /// Returns once the transactions of other connections that are in progress have ended.
  func waitForCommits() throws {
    try connection.transaction(.beginWriting) {}
  }

  /// Whether ``shortenLog()`` has something to do.
  var isLogLong: Bool {
    connection.logPages >= Self.pagesPerCheckpoint || state.withLock { $0.isShrinkingPending }
  }

  /// Checkpoints the log into the database.
  ///
  /// If reads overlap all the time, the log can start over only after a wait for the readers, during which no connection can
  /// write. The engine waits once the log has become long. If the wait is too short for that, the engine waits again when the log
  /// is twice as long.
  func shortenLog() {
    state.withLock { state in
      // If this fails, everything stays in the log, and one of the next calls checkpoints it. The log may also belong to another
      // database by now, which the check detects.
      do {
        try files.check(isThorough: true)
        let pages = connection.logPages
        guard pages >= state.logLimit else {
          if try connection.checkpoint() { state.isShrinkingPending = false }
          return
        }
        state.logLimit = 2 * pages
        let wait = Self.timePerLimit * (Double(pages) / Double(Self.logLimit))
        try connection.restartLog(waiting: wait)
        state.logLimit = Self.logLimit
        state.isShrinkingPending = false
      } catch {}
    }
  }

  /// Waits until readers are no longer blocked, for at most the lock's timeout.
  func waitUntilReadable() throws {
    try connection.run(.metadata) { _ = try $0.step() }
  }

  /// Closes the connection. In most cases it is the last connection, so that it checkpoints the log and deletes it. It deletes
  /// the log by its name, which must still refer to the same file.
  func close() {
    do {
      try files.check(isThorough: true)
      state.withLock { state in
        if state.isFailedCommitInLog { overwriteFailedCommit(&state) }
      }
      try connection.keepLogWhenClosing(files.keepsLog)
    } catch {
      // The connection then keeps the log, as it was configured when it was opened. If the files are not in place, no other
      // connection will read that log.
    }
    connection.close()
  }

  /// Makes the database smaller if most of it is free. This is a separate transaction, which writes the
  /// remaining data, and changes no entry.
  private func returnFreePages() {
    // A failure, such as a full disk, leaves the space to later entries, and the next removal of all entries
    // retries.
    do {
      let pages = try connection.number(.pageCount)
      guard let free = Int(try connection.execute("PRAGMA freelist_count") ?? ""),
        free >= Self.minimumFreePages, free > pages / 4 * 3
      else { return }
      try connection.vacuum()
      state.withLock { $0.isShrinkingPending = true }
      try connection.restartLog(waiting: Self.shrinkingTimeout, isEmptied: true)
      state.withLock { $0.isShrinkingPending = false }
    } catch {}
  }

  /// The minimum number of free pages for which this is worthwhile: 1 MiB.
  private static let minimumFreePages = 256
  /// How long to wait for reads of removed entries. After that, each commit retries.
  private static let shrinkingTimeout = Duration.milliseconds(100)
}
