import StockroomCSQLite
import StockroomCore
import Synchronization

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// One connection to a database, with the statements prepared on it so far.
///
/// Opened without SQLite's own mutex, so one thread at a time may use it:
/// https://sqlite.org/threadsafe.html
final class SQLiteConnection: @unchecked Sendable {
  // Safe to share: the pool lends a reading connection to one caller at a time, and the writing one belongs to the engine's own
  // thread. Both pass it on through a lock, which orders their accesses to memory. Other threads may call only interrupt().

  /// The state that SQLite's callbacks read and write, on the thread that uses the connection.
  private final class CallbackState {
    /// How long to wait for other connections.
    var timeout = Duration.zero
    /// When the wait in progress ends.
    var end = ContinuousClock.now
    /// The pages in the write-ahead log at the last commit of this connection.
    var logPages = 0
  }

  let path: String
  private(set) var handle: OpaquePointer?
  private var prepared = [OpaquePointer?](repeating: nil, count: SQLiteQuery.allCases.count)
  private let callbackState = CallbackState()
  private let isInterrupted = Atomic(false)

  /// Opens an existing database file, without reading from it or writing to it.
  ///
  /// - Parameters:
  ///   - file: The path without symbolic links, since SQLite is opened to follow none.
  ///   - path: The path as the caller gave it, for messages.
  ///   - lockTimeout: How long to wait while others keep the database busy. Nil means that the connection does not wait.
  ///   - isImmutable: Whether no process can change the file, so that SQLite takes no locks:
  ///     https://sqlite.org/uri.html#uriimmutable
  init(file: String, path: String, lockTimeout: Duration?, isImmutable: Bool = false) throws {
    self.path = path
    let flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW
    let result =
      isImmutable
      ? sqlite3_open_v2(Self.immutable(file), &handle, flags | SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nil)
      : sqlite3_open_v2(file, &handle, flags | SQLITE_OPEN_READWRITE, nil)
    guard result == SQLITE_OK, let handle else {
      defer { close() }
      throw StorageError.sqlite(result, handle, "Opening the database \(path) failed.")
    }
    sqlite3_extended_result_codes(handle, 1)
    let state = Unmanaged.passUnretained(callbackState).toOpaque()
    if let lockTimeout {
      callbackState.timeout = lockTimeout
      sqlite3_busy_handler(handle, Self.waitForOthers, state)
    }
    // Replaces SQLite's own automatic checkpoints.
    sqlite3_wal_hook(handle, Self.rememberLogPages, state)
  }

  deinit { close() }

  /// The URI of a file with the parameter `immutable=1`, by which SQLite assumes that no process changes the file.
  private static func immutable(_ file: String) -> String {
    "file://"
      + file.utf8.map { byte in
        let isPlain =
          UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte | 0x20
          || UInt8(ascii: "/")...UInt8(ascii: "9") ~= byte
        return isPlain ? String(UnicodeScalar(byte)) : "%" + String(Int(byte) + 0x100, radix: 16).dropFirst()
      }.joined() + "?immutable=1"
  }

  /// Finalizes the statements and closes the connection. May be called twice.
  func close() {
    for statement in prepared { sqlite3_finalize(statement) }
    prepared = prepared.map { _ in nil }
    // Without statements, this cannot fail because the connection is in use. The last connection to a
    // database also checkpoints the write-ahead log; if that fails, the log stays and is read the next time.
    sqlite3_close_v2(handle)
    handle = nil
  }

  /// Calls `body` with the statement for a query, ready to be bound, and rewinds it afterwards.
  func run<Result>(_ query: SQLiteQuery, _ body: (SQLiteStatement) throws -> Result) throws -> Result {
    let statement = try statement(for: query)
    defer { statement.reset() }
    return try body(statement)
  }

  /// The number that a query without parameters returns.
  func number(_ query: SQLiteQuery) throws -> Int {
    try run(query) { try $0.step() ? Int($0.number(at: 0)) : 0 }
  }

  /// Runs a query that takes no parameters and returns no rows.
  func run(_ query: SQLiteQuery) throws {
    try run(query) { _ = try $0.step() }
  }

  /// The statement for a query, ready to be bound. The caller resets it.
  func statement(for query: SQLiteQuery) throws -> SQLiteStatement {
    if let statement = prepared[query.rawValue] {
      return SQLiteStatement(handle: statement, connection: self)
    }
    guard handle != nil else { throw StorageError(.closed, "The connection to \(path) has been closed.") }
    var statement: OpaquePointer?
    let flags = UInt32(SQLITE_PREPARE_PERSISTENT)
    let result = sqlite3_prepare_v3(handle, query.sql, -1, flags, &statement, nil)
    guard result == SQLITE_OK, let statement else { throw error(result, "Preparing “\(query.sql)”") }
    prepared[query.rawValue] = statement
    return SQLiteStatement(handle: statement, connection: self)
  }

  /// Runs SQL that is not worth preparing, and returns the text in its first row and column, if any.
  @discardableResult
  func execute(_ sql: String) throws -> String? {
    var statement: OpaquePointer?
    let result = sqlite3_prepare_v2(handle, sql, -1, &statement, nil)
    defer { sqlite3_finalize(statement) }
    guard result == SQLITE_OK, let statement else { throw error(result, "Preparing “\(sql)”") }
    let running = SQLiteStatement(handle: statement, connection: self)
    guard try running.step(), let text = sqlite3_column_text(statement, 0) else { return nil }
    return String(cString: text)
  }

  /// Runs `body` in a transaction, which is committed or, if `body` throws, rolled back. A body that continues after a statement
  /// has failed must check ``isInTransaction`` before it writes.
  func transaction<Result>(_ kind: SQLiteQuery, _ body: () throws -> Result) throws -> Result {
    try begin(kind)
    do {
      let result = try body()
      if kind == .beginReading, !isInTransaction { return result }
      try run(.commit)
      return result
    } catch {
      endFailedTransaction()
      throw error
    }
  }

  /// Whether a transaction that was begun is still open. After some errors, even of statements that only read, SQLite rolls it
  /// back by itself, and then commits each statement alone: https://sqlite.org/lang_transaction.html
  var isInTransaction: Bool { handle.map { sqlite3_get_autocommit($0) == 0 } ?? false }

  /// Runs `body`, which may suspend, in a read transaction, so that it reads a snapshot.
  func snapshot<Result>(_ body: () async throws -> Result) async throws -> Result {
    try begin(.beginReading)
    do {
      let result = try await body()
      try run(.commit)
      return result
    } catch {
      endFailedTransaction()
      throw error
    }
  }

  /// The error after a failed read has ended the transaction.
  var endedTransaction: StorageError {
    StorageError(.io, "A read failed in the database \(path), and SQLite has ended its transaction.")
  }

  private func begin(_ kind: SQLiteQuery) throws {
    // If the previous transaction could not be rolled back, this throws the reason.
    if isInTransaction { try run(.rollback) }
    try run(kind)
  }

  /// Rolls back the transaction. The caller throws the error of the transaction, so an error of the rollback is ignored: the next
  /// transaction retries the rollback, and a reader with an open transaction is closed.
  private func endFailedTransaction() {
    if isInTransaction { try? run(.rollback) }
  }

  /// Sets the number of bytes of the database that the connection keeps in memory.
  ///
  /// Reads the database.
  func setCacheSize(_ bytes: Int) throws {
    // SQLite treats a number that 32 bits cannot hold as 0.
    try execute("PRAGMA cache_size = -\(min(max(0, bytes) >> 10, Int(Int32.max)))")
  }

  /// Makes the statements in progress on any thread throw `CancellationError`, including those that begin
  /// before the last of them has ended.
  func interrupt() {
    isInterrupted.store(true, ordering: .relaxed)
    sqlite3_interrupt(handle)
  }

  /// Throws `CancellationError` if the connection was interrupted, possibly before a statement was in
  /// progress.
  func checkInterruption() throws {
    if isInterrupted.load(ordering: .relaxed) { throw CancellationError() }
  }

  /// The error for a result code of a call on this connection.
  func error(_ result: Int32, _ action: String) -> any Error {
    // Only the cancelled task interrupts.
    if result & 0xff == SQLITE_INTERRUPT { return CancellationError() }
    return StorageError.sqlite(result, handle, "\(action) failed in the database \(path).")
  }

  /// Waits while another connection keeps the database busy: at most ten milliseconds at a time. SQLite's own handler waits
  /// longer each time, so that the connection that has waited longest would get the database last.
  private static let waitForOthers: @convention(c) (UnsafeMutableRawPointer?, Int32) -> Int32 = {
    state, attempts in
    guard let state else { return 0 }
    let wait = Unmanaged<CallbackState>.fromOpaque(state).takeUnretainedValue()
    if attempts == 0 { wait.end = .now + wait.timeout }
    guard ContinuousClock.now < wait.end else { return 0 }
    usleep(1_000 * UInt32(min(attempts + 1, 10)))
    return 1
  }

  private static let rememberLogPages:
    @convention(c) (UnsafeMutableRawPointer?, OpaquePointer?, UnsafePointer<CChar>?, Int32) -> Int32 = {
      state, _, _, pages in
      guard let state else { return SQLITE_OK }
      Unmanaged<CallbackState>.fromOpaque(state).takeUnretainedValue().logPages = Int(pages)
      return SQLITE_OK
    }
}

// MARK: - The write-ahead log

extension SQLiteConnection {
  /// The pages in the log after the last commit of this connection.
  var logPages: Int { callbackState.logPages }

  /// Checkpoints the log into the database, except for pages that would replace ones that a reader uses. Returns whether it
  /// checkpointed the whole log.
  func checkpoint() throws -> Bool {
    try checkpoint(SQLITE_CHECKPOINT_PASSIVE)
  }

  /// Checkpoints the whole log into the database, so that the log starts over, once no reader uses it any
  /// more. Until then no connection can write.
  ///
  /// - Parameter isEmptied: Whether the log's file is truncated.
  /// - Throws: `StorageError` with code `locked` if a reader continues for longer than `timeout`.
  func restartLog(waiting timeout: Duration, isEmptied: Bool = false) throws {
    try wait(atMost: timeout) {
      _ = try checkpoint(isEmptied ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_RESTART)
    }
    callbackState.logPages = 0
  }

  /// Rewrites the database without its free pages: https://sqlite.org/lang_vacuum.html
  ///
  /// - Throws: `StorageError` with code `locked` if another connection is writing.
  func vacuum() throws {
    try wait(atMost: .zero) { try execute("VACUUM") }
  }

  /// Runs `body`, and waits for other connections for at most `timeout` instead of the usual time.
  private func wait(atMost timeout: Duration, _ body: () throws -> Void) throws {
    let usual = callbackState.timeout
    callbackState.timeout = min(usual, timeout)
    defer { callbackState.timeout = usual }
    try body()
  }

  /// Sets whether close() leaves the log unchanged, even on the last connection.
  func keepLogWhenClosing(_ isKept: Bool = true) throws {
    guard handle != nil else { return }
    let result = stockroom_sqlite3_no_checkpoint_on_close(handle, isKept ? 1 : 0)
    guard result == SQLITE_OK else { throw error(result, "Leaving the log") }
  }

  private func checkpoint(_ mode: Int32) throws -> Bool {
    guard handle != nil else { throw StorageError(.closed, "The connection to \(path) has been closed.") }
    var pages: (all: Int32, done: Int32) = (0, 0)
    let result = sqlite3_wal_checkpoint_v2(handle, "main", mode, &pages.all, &pages.done)
    guard result == SQLITE_OK else { throw error(result, "Moving the log into the database") }
    return pages.done == pages.all
  }
}
