import StockroomCore

/// The connections of one database that only read. There are never more than concurrent callers, and only
/// long reads wait for one another, of which ``LongReadLimiter`` limits the number.
final class SQLiteReaders: Sendable {
  /// The maximum number of connections that are kept while they are not in use.
  static let mostIdle = 8

  private let file: SQLiteFile
  private let files: SQLiteFiles
  private let idle = MutexProtected<[SQLiteConnection]>([])
  /// Long reads, which yield to one another or run beside all others, each with a connection.
  let longReads = LongReadLimiter()

  init(of file: SQLiteFile, _ files: SQLiteFiles) {
    self.file = file
    self.files = files
  }

  /// Lends a connection to `body`. Opens one if none is idle.
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
      // An error of reading another database would be misleading.
      try files.check(isThorough: true)
      isKept = true
      throw error
    }
  }

  /// The same for a body that pauses, so that the connection is passed from thread to thread.
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
    // Opening could create files in the place of others.
    try files.check(isThorough: true)
    do {
      let reader = try file.openReader(isWaiting: isWaiting)
      // It has opened what the path led to when the engine was opened, without links. That this is the database of the
      // engine follows only if that leads to it, and still does so when the two are compared.
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
