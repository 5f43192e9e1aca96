#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import StockroomCore

/// An open database: one connection that writes, on its own thread, and a pool of connections that read.
///
/// With a write-ahead log, neither do readers wait for the writer, nor does the writer wait for readers:
/// https://sqlite.org/wal.html
final class SQLiteDatabase: Sendable {
  let gate: Gate
  private let thread = DedicatedThread()
  private let file: SQLiteFile
  private let files: SQLiteFiles
  private let committer: SQLiteCommitter
  private let groups: GroupCommitter<WriteRequest>
  private let readers: SQLiteReaders
  private let lockTimeout: Duration
  let feed: ChangeFeed
  var path: String { file.path }

  /// Opens the database, or creates it.
  init(_ file: SQLiteFile, lockTimeout: Duration) throws {
    let connection = try file.openFirst()
    self.file = file
    self.lockTimeout = lockTimeout
    files = try SQLiteFiles(file, openOn: connection)
    gate = Gate(path: file.path)
    let feed = ChangeFeed(logAtPath: file.path + "-changes", like: file.path)
    self.feed = feed
    let committer = SQLiteCommitter(on: connection, files, feed)
    groups = GroupCommitter(on: thread) { [thread] group in
      try committer.commit(group)
      // Runs after the tasks have been resumed. Once the thread is being stopped, closing does the same.
      if committer.isLogLong { _ = try? thread.enqueue { committer.shortenLog() } }
    }
    self.committer = committer
    readers = SQLiteReaders(of: file, files)
  }

  deinit {
    // Streams end at once. Closing waits for the disk, and for a check of the feed's watcher that is in progress; and
    // the last reference may be dropped on a thread of the cooperative pool (rule C5).
    feed.hub.finish()
    let (feed, readers, committer, files) = (feed, readers, committer, files)
    do {
      try thread.enqueue { Self.release(feed, readers, committer, files) }
      thread.stopWithoutWaiting()
    } catch let error as StorageError where error.code == .closed {
      // close() has stopped the thread, and released everything.
    } catch {
      // No thread can be created, so this one waits, since the files must be closed.
      thread.stop()
      Self.release(feed, readers, committer, files)
    }
  }

  /// Runs `body` with a connection that reads, on the caller's thread and without waiting for other connections.
  func read<Result>(_ body: (SQLiteConnection) throws -> Result) async throws -> Result {
    try gate.enter()
    defer { gate.leave() }
    do {
      return try readers.withReader(body)
    } catch let error as StorageError where error.code == .locked {
      return try await afterWaiting { try readers.withReader(body) }
    }
  }

  /// Runs `body`, which reads many entries and yields to other tasks in between (rule C5). It may be called again from the
  /// beginning.
  ///
  /// - Parameter isLong: Whether it is a long read, which may have to wait, since ``LongReadLimiter`` limits their number.
  func readMuch<Result>(
    isLong: Bool = true,
    _ body: (SQLiteConnection, inout YieldTimer) async throws -> Result
  ) async throws -> Result {
    try gate.enter()
    defer { gate.leave() }
    var timer = YieldTimer()
    try await timer.start()
    if isLong { try await readers.longReads.enter() }
    defer { if isLong { readers.longReads.leave() } }
    do {
      return try await readers.withReader { try await body($0, &timer) }
    } catch let error as StorageError where error.code == .locked {
      return try await afterWaiting { try await readers.withReader { try await body($0, &timer) } }
    }
  }

  /// Occasionally, another process makes readers wait: it recovers the log after a crash, or closes the database as the last one.
  /// Waits on the engine's own thread, then retries `body`.
  private func afterWaiting<Result>(_ body: () async throws -> Result) async throws -> Result {
    let end = ContinuousClock.now + lockTimeout
    while true {
      try await thread.run { [committer] in try committer.waitUntilReadable() }
      do {
        return try await body()
      } catch let error as StorageError where error.code == .locked && ContinuousClock.now < end {}
    }
  }

  /// Runs `body` on a separate connection and thread, for long work that cannot yield. It counts as a long read. If the task is
  /// cancelled, the statement in progress throws `CancellationError`.
  func readApart(_ body: @escaping @Sendable (SQLiteConnection) throws -> Void) async throws {
    try gate.enter()
    defer { gate.leave() }
    try await readers.longReads.enter()
    defer { readers.longReads.leave() }
    let thread = DedicatedThread()
    defer { thread.stop() }
    let reader = try await thread.run { [readers] in try readers.open(isWaiting: true) }
    defer { reader.close() }
    try await withTaskCancellationHandler {
      try await thread.run { [files] in
        let result = Result { try body(reader) }
        try files.check(isThorough: true)
        try result.get()
      }
    } onCancel: {
      reader.interrupt()
    }
  }

  /// Returns once the request is committed, together with those of other tasks.
  func commit(_ request: WriteRequest) async throws {
    try gate.enter()
    defer { gate.leave() }
    guard !request.isEmpty else { return }
    if file.isReadOnly { return try await thread.run { [committer] in try committer.runReadOnly(request) } }
    try await groups.submit(request)
  }

  /// A stream of the changes from now on.
  func changes() async throws -> StorageChanges {
    try gate.enter()
    defer { gate.leave() }
    if file.isReadOnly {
      throw StorageError(
        .unsupported, "The database \(file.path) was opened as read-only, so it has no change feed.")
    }
    try Task.checkCancellation()
    let (owner, origin) = (ObjectIdentifier(self), ChangeOrigin.current)
    return try await thread.run { [feed, readers, committer, lockTimeout] in
      let end = ContinuousClock.now + lockTimeout
      while true {
        try committer.waitUntilReadable()
        do {
          return try feed.subscribe(without: origin, of: owner) {
            try SQLiteChangeSource(on: readers.open())
          } afterCommits: {
            try committer.waitForCommits()
          }
        } catch let error as StorageError where error.code == .locked && ContinuousClock.now < end {
          // The connection of the feed does not wait for locks, and another process may have held one briefly.
          usleep(1_000)
        }
      }
    }
  }

  func close() async throws {
    try await gate.close {
      feed.hub.finish()
      try await thread.run { [feed, readers, committer, files] in
        Self.release(feed, readers, committer, files)
      }
      thread.stop()
    }
  }

  private static func release(
    _ feed: ChangeFeed, _ readers: SQLiteReaders, _ committer: SQLiteCommitter, _ files: SQLiteFiles
  ) {
    feed.finish()
    readers.drain()
    // Last, since the last connection to close removes the log.
    committer.close()
    files.close()
  }
}
