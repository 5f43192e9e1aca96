import StockroomCore

/// Refuses files that are not databases of this engine, and leaves them unchanged (rules O2, F2).
extension SQLiteFile {
  /// Throws if the file is not a database of this engine, or has been truncated.
  func recognize(_ connection: SQLiteConnection, size: Int) throws {
    var header = try connection.header(length: min(size, SQLiteEncoding.headerLength))
    try SQLiteEncoding.recognize(header: header, path: path)
    // SQLite treats an incomplete last page as one that ends with zeros. Checked twice, since another process
    // may be making the database shorter.
    var (expected, found): (Int64, Int64) = (0, 0)
    for _ in 0..<2 {
      (expected, found) = (SQLiteEncoding.size(header: header) ?? 0, Int64(try self.size() ?? 0))
      // The missing part may be in the log and not have been checkpointed yet.
      if try found >= expected || hasLog() { return }
      header = try connection.header(length: SQLiteEncoding.headerLength)
    }
    throw StorageError(.corrupted, "\(path) has been truncated: it has \(found) bytes of \(expected).")
  }

  /// Throws if the latest commit, which may be only in the log, was made by another program or a later version of this one, or if
  /// a table or the metadata are missing. Reads the database, and writes nothing to it.
  func recognizeContents(_ connection: SQLiteConnection) throws {
    try SQLiteEncoding.recognize(
      applicationID: headerField("application_id", connection),
      formatVersion: headerField("user_version", connection), path: path)
    // These reads throw if a table is missing, so that opening throws and not a later call.
    if !isReadOnly { _ = try SQLiteWriter(on: connection) }
    try findTables(connection)
  }

  /// A number in the database's header, as the latest commit has left it.
  func headerField(_ name: String, _ connection: SQLiteConnection) throws -> UInt32 {
    guard let number = try connection.execute("PRAGMA \(name)").flatMap({ Int32($0) }) else {
      throw StorageError(.corrupted, "The header of \(path) has no \(name).")
    }
    return UInt32(bitPattern: number)
  }

  /// Calls `recognizeContents(_:)` before the database is opened, if it has been copied with its log, but without the shared
  /// memory. SQLite would otherwise create the shared memory even for a database that is then refused.
  func recognizeCopiedLog(size: Int) throws {
    guard try hasLog(), try status(path + "-shm") == nil else { return }
    // Does not wait for locks: two connections that wait for an exclusive lock would block each other with the shared locks that
    // they hold.
    let connection = try SQLiteConnection(file: file, path: path, lockTimeout: nil)
    defer { connection.close() }
    try connection.keepLogWhenClosing()
    try recognize(connection, size: size)
    // The caller opens it again, and throws the error.
    if connection.isReadOnly { return }
    do {
      // Keeps the index of the log in the memory of this connection alone:
      // https://sqlite.org/wal.html#use_of_wal_without_shared_memory
      try connection.execute("PRAGMA locking_mode = EXCLUSIVE")
      try recognizeContents(connection)
    } catch let error as StorageError where error.code == .locked {
      // Another connection has just opened it, or is about to close it.
    }
  }

  private func findTables(_ connection: SQLiteConnection) throws {
    try connection.run(.metadata) { _ = try $0.step() }
    _ = try connection.run(.exists) { statement in
      try statement.bind(UnsafeRawBufferPointer(start: nil, count: 0), at: 1)
      return try statement.step()
    }
  }

  /// Runs `body`, which may refuse the database of a new connection. From now on, closing the connection leaves the log
  /// unchanged, until ``SQLiteCommitter/close()`` changes that: otherwise the last connection to close would checkpoint the log
  /// of a refused database and delete it (rule O2).
  func keepingLog(of connection: SQLiteConnection, _ body: () throws -> Void) throws {
    let hadLog = try status(path + "-wal") != nil
    try connection.keepLogWhenClosing()
    do {
      try body()
    } catch {
      // An empty log that SQLite has just created is deleted again. If it cannot be determined whether the log is empty, it
      // stays.
      if !hadLog, (try? hasLog()) == false { try? connection.keepLogWhenClosing(false) }
      throw error
    }
  }
}
