import StockroomCore

/// The connection that writes, on the engine's own thread, and what it has to do besides: to see to it that what is
/// committed is there for everybody, that the log stays short, and that the disk gets its room back.
final class SQLiteCommitter: Sendable {
  private struct State {
    /// What the last transaction has left, if it is known.
    var metadata: SQLiteMetadata?
    /// At how many pages of the log to wait for those who read from it.
    var logLimit = SQLiteCommitter.logLimit
    /// Whether the database gets smaller once its log has been moved into it.
    var isRoomInLog = false
  }

  /// At how many pages of the log they are moved into the database: those that SQLite itself takes.
  private static let pagesPerCheckpoint = 1_000
  /// At how many pages the log starts over, even if that takes waiting: 16 MiB.
  private static let logLimit = 4_096
  /// How long to wait then, for each so many pages.
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

  /// Commits the requests, in this order, together. What fails for want of room is tried once more from the beginning of
  /// the log, whose own room may do: removals work on a full disk that way, unless the database has to grow first.
  ///
  /// - Throws: `StorageError`; `AfterCommitError` if the files have been replaced in this very moment, so that the
  ///   transaction has been committed to files that are not there any more (rule C6).
  func commit(_ requests: [WriteRequest]) throws {
    // Put in order before the database is locked, if there are no transactions that have to look at it first.
    let known = requests.knownOperations.map { ($0, SortedBatch(joining: $0, requests.times(of: $0))) }
    var removesAll = false
    do {
      removesAll = try commit(requests, known)
    } catch let error as StorageError where error.code == .diskFull {
      guard (try? connection.restartLog(waiting: .zero)) != nil else { throw error }
      removesAll = try commit(requests, known)
    }
    if removesAll { giveRoomBack() }
  }

  /// - Returns: Whether everything that there was has been removed.
  private func commit(
    _ requests: [WriteRequest], _ knownBatch: (operations: [[StorageOperation]], batch: SortedBatch)?
  ) throws -> Bool {
    try state.withLock { state in
      // Forgotten if the transaction fails, since it is not known then what was kept.
      let known = state.metadata.take()
      var announcement: ChangeFeed.Announcement?
      var left: SQLiteMetadata
      let removesAll: Bool
      // Whether a transaction alone failed to read and changes nothing, so that the result of its body is what the caller gets.
      var hasNothingToDo = false
      // Whether all has been done but the commit itself.
      var isCommitting = false
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
          // Not to write where others write by now, or where no opening will look.
          try files.check()
          if !batch.operations.isEmpty {
            // SQLite counts no transaction that changes nothing.
            let hasChanged = batch.removesAll || connection.changeCount != changesBefore
            announcement = feed.announce(requests, operations, hasNumber: hasChanged) {
              try connection.commitNumber() + 1
            }
          }
          isCommitting = true
          return (left, batch.removesAll)
        }
      } catch {
        if let announcement { feed.withdraw(announcement) }
        try files.check(isThorough: true)
        if hasNothingToDo { return false }
        if isCommitting { overwriteFailedCommit() }
        throw error
      }
      if let announcement { feed.publish(announcement) }
      // Not to acknowledge it either, if it happened in between.
      try AfterCommitError.marking { try files.check(isThorough: true) }
      // The transaction has been committed, and an error here must not say otherwise.
      if let version = try? connection.dataVersion() {
        left.version = version
        state.metadata = left
      }
      return removesAll
    }
  }

  /// Writes a commit that changes no entry over what one that has failed has left in the log. If only the sync has failed, all of it is
  /// there, and whoever recovers the log after a crash would take it for committed (rules W6, F4).
  private func overwriteFailedCommit() {
    // Its own sync may fail as well: it is in the log all the same, and may be lost. If it cannot be written, the next commit does it.
    try? connection.transaction(.beginWriting) { try connection.run(.skipSequence) }
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

  /// Returns once the transactions of other connections that are under way have ended.
  func waitForCommits() throws {
    try connection.transaction(.beginWriting) {}
  }

  /// Whether ``shortenLog()`` has something to do.
  var isLogLong: Bool {
    connection.logPages >= Self.pagesPerCheckpoint || state.withLock { $0.isRoomInLog }
  }

  /// Moves what is in the log into the database.
  ///
  /// As long as the reads of others overlap, the log cannot start over without waiting for a moment, during which no one
  /// can write. That is done when it has become long. What has not been enough then will be twice as long the next time.
  func shortenLog() {
    state.withLock { state in
      // A failure leaves everything in the log, which the next commits make longer, until one of them succeeds here. The
      // log may also be another one's by now.
      do {
        try files.check(isThorough: true)
        let pages = connection.logPages
        guard pages >= state.logLimit else {
          if try connection.checkpoint() { state.isRoomInLog = false }
          return
        }
        state.logLimit = 2 * pages
        let wait = Self.timePerLimit * (Double(pages) / Double(Self.logLimit))
        try connection.restartLog(waiting: wait)
        state.logLimit = Self.logLimit
        state.isRoomInLog = false
      } catch {}
    }
  }

  /// Waits until readers are no longer kept out, for as long as the lock's timeout.
  func waitUntilReadable() throws {
    try connection.run(.metadata) { _ = try $0.step() }
  }

  /// Closes the connection. It is the last one in most cases, so that it moves the log into the database and deletes it,
  /// by its name, which must be the right one.
  func close() {
    do {
      try files.check(isThorough: true)
      if try files.keepsLog { try connection.keepLogWhenClosing() }
    } catch {
      // The log of this connection will not be read then. The call does not fail on an open connection.
      _ = try? connection.keepLogWhenClosing()
    }
    connection.close()
  }

  /// Makes the database smaller if most of it is free. It is a transaction of its own, which writes what is left, and
  /// changes no entry.
  private func giveRoomBack() {
    // A failure, such as a full disk, leaves the room to later entries, and the next removal of all tries again.
    do {
      guard let pages = Int(try connection.execute("PRAGMA page_count") ?? ""),
        let free = Int(try connection.execute("PRAGMA freelist_count") ?? ""),
        free >= Self.pagesWorthGiving, free > pages / 4 * 3
      else { return }
      try connection.vacuum()
      state.withLock { $0.isRoomInLog = true }
      try connection.restartLog(waiting: Self.timeForRoom, isEmptied: true)
      state.withLock { $0.isRoomInLog = false }
    } catch {}
  }

  /// How many free pages are worth the effort: 1 MiB.
  private static let pagesWorthGiving = 256
  /// How long to wait for reads of what has been removed. After that, each commit tries again.
  private static let timeForRoom = Duration.milliseconds(100)
}
