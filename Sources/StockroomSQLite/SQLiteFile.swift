import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The file that a database is in: how it comes to be, and how it is opened without harm to what it may be instead.
struct SQLiteFile {
  let path: String

  /// Opens the database for writing, and makes it first if there is none.
  func connect(durability: Durability) throws -> SQLiteConnection {
    let size = try size() ?? make()
    let connection = try SQLiteConnection(path: path, role: .writer(creating: false))
    try SQLiteEncoding.recognise(
      header: connection.header(length: min(size, SQLiteEncoding.headerLength)), path: path)
    if connection.isReadOnly {
      let reason = access(path, W_OK) == 0 ? EACCES : errno
      throw StorageError.posix(reason, "The database \(path) can only be read.")
    }
    try configure(connection, durability: durability)
    return connection
  }

  /// The bytes in the file, or nil if there is none. Throws if what is there cannot be a database.
  private func size() throws -> Int? {
    var status = stat()
    if stat(path, &status) != 0 {
      if errno == ENOENT { return nil }
      throw StorageError.posix(errno, "Looking at \(path) failed.")
    }
    guard status.st_mode & S_IFMT == S_IFREG else {
      throw StorageError(.unsupported, "\(path) is not a file, so it cannot be a database.")
    }
    return Int(status.st_size)
  }

  /// Makes the database under another name and gives it its own when it is complete, so that an empty file is
  /// never a new database, but always one that was cut off (rule F2). Returns its size.
  private func make() throws -> Int {
    if access("\(path)-wal", F_OK) == 0 {
      // SQLite would take what is in the log for changes to the new database. Unless somebody has just made it.
      if let size = try size() { return size }
      throw StorageError(.corrupted, "\(path) is missing: its write-ahead log is there without it.")
    }
    let unfinished = "\(path)-new-\(UUID().uuidString)"
    defer { unlink(unfinished) }
    let connection = try SQLiteConnection(path: unfinished, role: .writer(creating: true))
    try connection.transaction(.beginWriting) {
      for statement in SQLiteEncoding.schema { try connection.execute(statement) }
      try connection.execute("PRAGMA application_id = \(SQLiteEncoding.applicationID)")
      try connection.execute("PRAGMA user_version = \(SQLiteEncoding.formatVersion)")
    }
    try useLog(connection)
    // Closed first, which moves what is in its log into the file.
    connection.close()
    try FileManager.Directory.name(unfinished, path)
    guard let size = try size() else {
      throw StorageError(.io, "The database \(path) has been removed by somebody else.")
    }
    return size
  }

  private func useLog(_ connection: SQLiteConnection) throws {
    guard try connection.execute("PRAGMA journal_mode = WAL") == "wal" else {
      throw StorageError(
        .unsupported, "The file system of \(path) lacks the shared memory that a write-ahead log needs.")
    }
  }

  private func configure(_ connection: SQLiteConnection, durability: Durability) throws {
    // Does nothing, unless somebody has taken the log away.
    try useLog(connection)
    // With a log, FULL syncs it at each commit; NORMAL only before its contents move into the database.
    try connection.execute("PRAGMA synchronous = \(durability == .full ? "FULL" : "NORMAL")")
    #if canImport(Darwin)
      if durability == .full {
        // On Apple's systems fsync leaves data in the drive's cache: https://sqlite.org/pragma.html#pragma_fullfsync
        try connection.execute("PRAGMA fullfsync = ON")
        try connection.execute("PRAGMA checkpoint_fullfsync = ON")
      }
    #endif
    // Some systems let SQLite overwrite all that is removed with zeros, others nothing of it. This does so everywhere
    // where it costs no more writing: https://sqlite.org/pragma.html#pragma_secure_delete
    try connection.execute("PRAGMA secure_delete = FAST")
    // A log that one huge batch made long gives its room back at the next checkpoint.
    try connection.execute("PRAGMA journal_size_limit = 67108864")
    try connection.enlargeCache()
    // What cannot work should fail now: these find out whether the tables are there.
    _ = try SQLiteWriter(on: connection)
    _ = try connection.run(.exists) { statement in
      try statement.bind(UnsafeRawBufferPointer(start: nil, count: 0), at: 1)
      return try statement.step()
    }
  }
}
