import StockroomCore

/// The connections of one database that only read. There are never more in use than concurrent callers. Only long reads wait for
/// one another, since ``LongReadLimiter`` limits their number.
final class SQLiteReaders: Sendable {
  /// The maximum number of connections that are kept while they are not in use.
  static let mostIdle = 8

  private let file: SQLiteFile
  private let files: SQLiteFiles
  private let idle = MutexProtected<[SQLiteConnection]>([])
  /// Limits the number of long reads, each of which has a connection while it yields to others or runs on its own thread.
  let longReads = LongReadLimiter()

  init(of file: SQLiteFile, _ files: SQLiteFiles) {
    self.file = file
    self.files = files
  }

  /// Calls `body` with a connection that no other caller uses. Opens one if none is idle.
  ///
  /// - Throws: `StorageError` with code `io` if the database is no longer there (rule C6).
  func withReader<Result>(_ body: (SQLiteConnection) throws -> Result) throws -> Result {
    let reader = try take()
    var isKept = false
    defer { isKept ? giveBack(reader) : reader.close() }
    do {
      let result = try body(reader)
      try files.check()
      isKept = true
      return result
    } catch {
      // If the files were replaced, throws that instead: an error from reading another database would be misleading.
      try files.check(isThorough: true)
      isKept = true
      throw error
    }
  }

  /// The same for a body that may suspend, so that several threads use the connection in turn.
  func withReader<Result>(
    pausing body: (SQLiteConnection) async throws -> Result
  ) async throws -> Result {
    let reader = try take()
    var isKept = false
    defer { isKept ? giveBack(reader) : reader.close() }
    do {
      let result = try await body(reader)
      try files.check()
      isKept = true
      return result
    } catch {
      try files.check(isThorough: true)
      isKept = true
      throw error
    }
  }

  /// Closes the idle connections.
  func drain() {
    let readers = idle.withLock { idle in
      defer { idle = [] }
      return idle
    }
    for reader in readers { reader.close() }
  }

  private func take() throws -> SQLiteConnection {
    if let reader = idle.withLock({ $0.popLast() }) { return reader }
    return try open()
  }

  /// Opens a connection for the caller alone.
  ///
  /// - Parameter isWaiting: Whether the connection waits while another process blocks all others.
  /// - Throws: `StorageError` with code `io` if the path leads to another database by now (rule C6).
  func open(isWaiting: Bool = false) throws -> SQLiteConnection {
    // Otherwise, opening could create files beside another database.
    try files.check(isThorough: true)
    do {
      let reader = try file.openReader(isWaiting: isWaiting)
      // The connection has opened the path whose links were resolved when the engine was opened. It has the engine's database
      // open only if that path leads to it, and still does so when the two are compared.
      try files.check(isThorough: true)
      try files.checkSource(file.file)
      try reader.checkPlace()
      return reader
    } catch {
      try files.check()
      throw error
    }
  }

  private func giveBack(_ reader: SQLiteConnection) {
    // If a transaction could not be rolled back, the next reader would read its old snapshot.
    if reader.isInTransaction { return reader.close() }
    let isKept = idle.withLock { idle in
      guard idle.count < Self.mostIdle else { return false }
      idle.append(reader)
      return true
    }
    if !isKept { reader.close() }
  }
}
