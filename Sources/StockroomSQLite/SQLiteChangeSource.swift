import StockroomCore

/// Detects commits by other connections: each writes the write-ahead log, whose index counts the commits.
final class SQLiteChangeSource: ChangeSource {
  private let connection: SQLiteConnection
  let writtenFiles: [String]
  private let last = MutexProtected<(number: UInt64, checksum: UInt64)?>(nil)

  /// - Parameter connection: A separate connection, used only for this.
  init(on connection: SQLiteConnection) throws {
    self.connection = connection
    writtenFiles = [connection.path + "-wal"]
    // Maps the index of the log into memory.
    try connection.run(.metadata) { _ = try $0.step() }
  }

  func latestCommit() throws -> UInt64? {
    do {
      return try numberOfLatestCommit()
    } catch let error as StorageError where error.code == .locked {
      // A process has died while it wrote the index. A read repairs the index.
      try connection.run(.metadata) { _ = try $0.step() }
      return nil
    }
  }

  private func numberOfLatestCommit() throws -> UInt64 {
    let latest = try connection.latestCommit()
    return try last.withLock { last in
      defer { last = latest }
      if let last, last.number == latest.number, last.checksum != latest.checksum {
        throw StorageError(
          .io, "The index of \(writtenFiles[0]) has been recovered, and counts from the beginning.")
      }
      return latest.number
    }
  }

  func isSettled() throws -> Bool {
    do {
      try connection.transaction(.beginWriting) {}
      return true
    } catch let error as StorageError where error.code == .locked {
      return false
    }
  }

  func close() { connection.close() }
}
