import StockroomCore

/// The connections of one database that only read. There are never more than callers at the same time, and no caller
/// ever waits for another.
final class SQLiteReaders: Sendable {
  /// How many are kept while they are not in use.
  static let mostIdle = 8

  private let file: SQLiteFile
  private let files: SQLiteFiles
  private let idle = MutexProtected<[SQLiteConnection]>([])

  init(of file: SQLiteFile, _ files: SQLiteFiles) {
    self.file = file
    self.files = files
  }

  /// Lends a connection to `body`. Opens one if none is idle.
  ///
  /// - Throws: `StorageError` with code `io` if the database is not there any more (rule C6).
  func withReader<Result>(_ body: (SQLiteConnection) throws -> Result) throws -> Result {
    let reader = try take()
    defer { giveBack(reader) }
    do {
      let result = try body(reader)
      try files.check()
      return result
    } catch {
      // What comes of reading something else would be misleading.
      try files.check(isThorough: true)
      throw error
    }
  }

  /// The same for a body that pauses, so that the connection moves from thread to thread.
  func withReader<Result>(
    pausing body: (SQLiteConnection) async throws -> Result
  ) async throws -> Result {
    let reader = try take()
    defer { giveBack(reader) }
    do {
      let result = try await body(reader)
      try files.check()
      return result
    } catch {
      try files.check(isThorough: true)
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
    do {
      return try file.openReader()
    } catch {
      try files.check()
      throw error
    }
  }

  private func giveBack(_ reader: SQLiteConnection) {
    let isKept = idle.withLock { idle in
      guard idle.count < Self.mostIdle else { return false }
      idle.append(reader)
      return true
    }
    if !isKept { reader.close() }
  }
}
