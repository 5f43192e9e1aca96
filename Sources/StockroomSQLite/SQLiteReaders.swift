import StockroomCore

/// The connections of one database that only read. There are never more than callers at the same time, and only long reads
/// wait for one another, of which no more than ``LongReadLimiter`` are under way.
final class SQLiteReaders: Sendable {
  /// How many are kept while they are not in use.
  static let mostIdle = 8

  private let file: SQLiteFile
  private let files: SQLiteFiles
  private let idle = MutexProtected<[SQLiteConnection]>([])
  /// Those that take long, and so yield to one another or go on beside all others, each with a connection.
  let longReads = LongReadLimiter()

  init(of file: SQLiteFile, _ files: SQLiteFiles) {
    self.file = file
    self.files = files
  }

  /// Lends a connection to `body`. Opens one if none is idle.
  ///
  /// - Throws: `StorageError` with code `io` if the database is not there any more (rule C6).
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
      // What comes of reading something else would be misleading.
      try files.check(isThorough: true)
      isKept = true
      throw error
    }
  }

  /// The same for a body that pauses, so that the connection moves from thread to thread.
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

  /// Opens a connection of the caller's own.
  ///
  /// - Parameter isWaiting: Whether the connection waits while another process keeps everybody out.
  /// - Throws: `StorageError` with code `io` if the path leads to another database by now (rule C6).
  func open(isWaiting: Bool = false) throws -> SQLiteConnection {
    // Opening could make files in the place of others.
    try files.check(isThorough: true)
    do {
      let reader = try file.openReader(isWaiting: isWaiting)
      // It has what the path led to a moment ago. That it is what the engine has opened follows only if the path leads there,
      // and does so still when the two are compared.
      try files.check(isThorough: true)
      try reader.checkPlace()
      return reader
    } catch {
      try files.check()
      throw error
    }
  }

  private func giveBack(_ reader: SQLiteConnection) {
    // Where a transaction could not be rolled back, whoever read next would read its old snapshot.
    if reader.isInTransaction { return reader.close() }
    let isKept = idle.withLock { idle in
      guard idle.count < Self.mostIdle else { return false }
      idle.append(reader)
      return true
    }
    if !isKept { reader.close() }
  }
}
