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

/// Creates a database, and sets up a connection that writes to it.
extension SQLiteFile {
  /// Creates the database under a temporary name and renames it when it is complete, so that an empty file is
  /// never a new database, but always one that was truncated (rule F2). Returns its size.
  func make() throws -> Int {
    try refuseWhatIsPlanted()
    if access("\(path)-wal", F_OK) == 0 {
      // SQLite would apply the log to the new database. If another process has just created the database, the log belongs to it.
      if let size = try size() { return size }
      throw StorageError(.corrupted, "\(path) is missing: its write-ahead log is there without it.")
    }
    let directory = try UnfinishedDirectory(for: file)
    defer { directory.remove(Self.unfinishedNames) }
    let unfinished = directory.path + "/database"
    try makeEmpty(unfinished)
    let connection = try SQLiteConnection(
      file: unfinished, path: unfinished, lockTimeout: options.lockTimeout)
    try connection.transaction(.beginWriting) {
      for statement in SQLiteEncoding.schema { try connection.execute(statement) }
      try connection.execute("PRAGMA application_id = \(SQLiteEncoding.applicationID)")
      try connection.execute("PRAGMA user_version = \(SQLiteEncoding.formatVersion)")
    }
    try useLog(connection)
    // Closed before the rename, which checkpoints its log.
    connection.close()
    try FileManager.Directory.name(unfinished, file)
    guard let size = try size() else {
      throw StorageError(.io, "The database \(path) has been removed by another program.")
    }
    return size
  }

  /// Removes the files of processes that died while they created the database.
  func removeAbandoned() throws {
    // The process that created the database removes its temporary name once the final one is on the disk. If there are still two
    // names, that process may have died before it synced the final one (rule W6).
    if let status = try status(path), status.linkCount > 1 {
      let directory = URL(filePath: file).deletingLastPathComponent()
      try FileManager.Directory.sync(directory.path(percentEncoded: false))
    }
    UnfinishedDirectory.removeAbandoned(for: file, Self.unfinishedNames)
  }

  private static let unfinishedNames = ["", "-journal", "-wal", "-shm"].map { "database" + $0 }

  /// Creates a file, with the permissions that SQLite will also give to the files beside it.
  private func makeEmpty(_ path: String) throws {
    // SQLite does not hold locks on it yet, which closing the descriptor would release.
    guard let file = try FileDescriptor.makeFile(atPath: path, options.permissions) else {
      throw StorageError.posix(EEXIST, "Creating \(path) failed.")
    }
    // Regardless of the process's umask.
    try file.setMode(options.permissions.fileMode)
  }

  private func useLog(_ connection: SQLiteConnection) throws {
    guard try connection.execute("PRAGMA journal_mode = WAL") == "wal" else {
      throw StorageError(
        .unsupported, "The file system of \(path) lacks the shared memory that a write-ahead log needs.")
    }
  }

  /// Sets up a connection that writes.
  func configure(_ connection: SQLiteConnection) throws {
    let durability = options.durability
    // Does nothing if the database is in WAL mode. A backup is not, until an engine opens it for writing.
    try useLog(connection)
    // With a log, FULL syncs it at each commit; NORMAL only before it is checkpointed into the database.
    try connection.execute("PRAGMA synchronous = \(durability == .full ? "FULL" : "NORMAL")")
    #if canImport(Darwin)
      if durability == .full {
        // On Apple's systems fsync leaves data in the drive's cache: https://sqlite.org/pragma.html#pragma_fullfsync
        try connection.execute("PRAGMA fullfsync = ON")
        try connection.execute("PRAGMA checkpoint_fullfsync = ON")
      }
    #endif
    // On some systems SQLite is built to overwrite all removed data with zeros, on others none. This does so
    // everywhere if it needs no additional writes: https://sqlite.org/pragma.html#pragma_secure_delete
    try connection.execute("PRAGMA secure_delete = FAST")
    // A log that one huge batch made long is truncated at the next checkpoint.
    try connection.execute("PRAGMA journal_size_limit = 67108864")
    try connection.setCacheSize(options.cacheSize)
  }
}
