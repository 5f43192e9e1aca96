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

/// How an engine uses its database.
struct SQLiteOptions: Sendable {
  var durability: Durability
  var permissions: FilePermissions
  var lockTimeout: Duration
  /// In bytes, of each connection.
  var cacheSize: Int
  var access = StorageAccess.readWrite
}

/// The file of a database: how it is created, and how it is opened without harming a file that is something
/// else.
struct SQLiteFile: Sendable {
  /// The path as the caller gave it, for messages.
  let path: String
  /// The same path with the directory's symbolic links resolved, since SQLite is opened to follow none (rule
  /// O5).
  private let file: String
  private let options: SQLiteOptions
  /// The status of the database before it was opened, if it is opened as one that nobody can change, so that
  /// it needs no files beside it.
  let immutableStatus: FileStatus?
  private var isImmutable: Bool { immutableStatus != nil }
  var permissions: FilePermissions { options.permissions }
  var isReadOnly: Bool { options.access == .readOnly }

  /// The file of this name in an existing directory.
  init(_ name: String, in directory: FileManager.Directory, _ options: SQLiteOptions) throws {
    path = Self.path(name, in: directory.path)
    file = Self.path(name, in: try directory.resolvedPath)
    self.options = options
    immutableStatus = try options.access == .readOnly ? Self.statusIfImmutable(file) : nil
  }

  /// The status of the database, if no log can be opened beside it, and none is needed.
  private static func statusIfImmutable(_ file: String) throws -> FileStatus? {
    if try isWritable(file) { return nil }
    // First, so that later changes are detected.
    let status = try FileStatus(atPath: file)
    let hasSharedMemory = try FileStatus(atPath: file + "-shm") != nil
    guard let log = try FileStatus(atPath: file + "-wal") else { return status }
    // The process that created both may be writing. They can be opened without being written to.
    return hasSharedMemory || log.size > 0 ? nil : status
  }

  private static func path(_ name: String, in directory: String) -> String {
    directory.hasSuffix("/") ? directory + name : "\(directory)/\(name)"
  }

  /// Opens the connection that the engine closes last: for writing, unless the engine only reads.
  func openFirst() throws -> SQLiteConnection { isReadOnly ? try openOnlyReader() : try openWriter() }

  /// Opens the database for writing, and first creates it if there is none.
  private func openWriter() throws -> SQLiteConnection {
    let size = try size() ?? make()
    try refuseWhatIsPlanted()
    try recognizeCopiedLog(size: size)
    let connection = try SQLiteConnection(file: file, path: path, lockTimeout: options.lockTimeout)
    try keepingLog(of: connection) {
      try recognize(connection, size: size)
      if connection.isReadOnly {
        let reason = access(path, W_OK) == 0 ? EACCES : errno
        throw StorageError.posix(reason, "The database \(path) can only be read.")
      }
      // First, since the rest may write to the database.
      try recognizeContents(connection)
      try configure(connection)
      // A backup has had no log until now: SQLite creates its files when it reads.
      _ = try headerField("user_version", connection)
    }
    return connection
  }

  /// Opens the database for an engine that only reads. The contents of the log stay there.
  private func openOnlyReader() throws -> SQLiteConnection {
    guard let size = try size() else { throw StorageError.posix(ENOENT, "There is no database \(path).") }
    try refuseWhatIsPlanted()
    if try hasLog(), try !Self.isWritable(file), try status(path + "-shm") == nil {
      throw StorageError(
        .readOnly,
        "The database \(path) cannot be read where it cannot be written: a process that died has left the latest changes in \(path)-wal. "
          + "Copy both files to a place where they can be written.")
    }
    try recognizeCopiedLog(size: size)
    let connection = try SQLiteConnection(
      file: file, path: path, lockTimeout: options.lockTimeout, isImmutable: isImmutable)
    try keepingLog(of: connection) {
      try recognize(connection, size: size)
      try connection.execute("PRAGMA query_only = ON")
      try connection.setCacheSize(options.cacheSize)
      try recognizeContents(connection)
    }
    return connection
  }

  /// Does `body`, which may refuse the database, on a new connection. From now on, closing the connection leaves the log unchanged,
  /// unless the engine decides otherwise: the last connection to close would checkpoint the log of a refused database
  /// and delete it (rule O2).
  private func keepingLog(of connection: SQLiteConnection, _ body: () throws -> Void) throws {
    let hadLog = try status(path + "-wal") != nil
    try connection.keepLogWhenClosing()
    do {
      try body()
    } catch {
      // SQLite removes the empty log that it has made. If it cannot be determined whether that is all, the log stays.
      if !hadLog, (try? hasLog()) == false { try? connection.keepLogWhenClosing(false) }
      throw error
    }
  }

  /// Throws if the file is not a database of this engine, or has been truncated.
  private func recognize(_ connection: SQLiteConnection, size: Int) throws {
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

  /// Throws if the latest commit, which may be only in the log, is one of another program or of a later version of this one,
  /// or if it lacks what the engine needs. Reads the database, and writes nothing to it.
  private func recognizeContents(_ connection: SQLiteConnection) throws {
    try SQLiteEncoding.recognize(
      applicationID: headerField("application_id", connection),
      formatVersion: headerField("user_version", connection), path: path)
    // Errors should occur now: these determine whether the tables exist.
    if !isReadOnly { _ = try SQLiteWriter(on: connection) }
    try findTables(connection)
  }

  private func headerField(_ name: String, _ connection: SQLiteConnection) throws -> UInt32 {
    guard let number = try connection.execute("PRAGMA \(name)").flatMap({ Int32($0) }) else {
      throw StorageError(.corrupted, "The header of \(path) has no \(name).")
    }
    return UInt32(bitPattern: number)
  }

  /// Calls `recognizeContents(_:)` before the database is opened, if somebody has copied it with its log, but without the shared
  /// memory. SQLite would create that, also for a database that is then refused.
  private func recognizeCopiedLog(size: Int) throws {
    guard try hasLog(), try status(path + "-shm") == nil else { return }
    // Does not wait: two that wait for each other's exclusive lock would keep the shared ones that they have.
    let connection = try SQLiteConnection(file: file, path: path, lockTimeout: nil)
    defer { connection.close() }
    try connection.keepLogWhenClosing()
    try recognize(connection, size: size)
    // Opening it again throws the error.
    if connection.isReadOnly { return }
    do {
      // The index of the log is then in the memory of this connection alone:
      // https://sqlite.org/wal.html#use_of_wal_without_shared_memory
      try connection.execute("PRAGMA locking_mode = EXCLUSIVE")
      try recognizeContents(connection)
    } catch let error as StorageError where error.code == .locked {
      // Another connection has just opened it, or is about to close it.
    }
  }

  /// Whether SQLite can write the database and create files beside it.
  private static func isWritable(_ file: String) throws -> Bool {
    let directory = URL(filePath: file).deletingLastPathComponent().path(percentEncoded: false)
    for path in [file, directory] where access(path, W_OK) != 0 {
      if [EACCES, EPERM, EROFS].contains(errno) { return false }
      // Opening it throws the error.
      return true
    }
    return true
  }

  /// Opens the database for reading.
  ///
  /// - Parameter isWaiting: Whether the connection waits while another process blocks all others.
  func openReader(isWaiting: Bool = false) throws -> SQLiteConnection {
    try refuseWhatIsPlanted()
    let lockTimeout = isWaiting ? options.lockTimeout : nil
    let connection = try SQLiteConnection(
      file: file, path: path, lockTimeout: lockTimeout, isImmutable: isImmutable)
    // The file may be another one by now, whose log must not be touched.
    try connection.keepLogWhenClosing()
    try connection.checkPlace()
    try connection.setCacheSize(options.cacheSize)
    return connection
  }

  /// The number of bytes in the file, or nil if there is none. Throws if it cannot be a database.
  private func size() throws -> Int? {
    try status(path)?.size
  }

  private func hasLog() throws -> Bool { try status(path + "-wal").map { $0.size > 0 } ?? false }

  /// Throws if anything that SQLite opens beside the database is not a regular file, such as a pipe, which
  /// would block it, or has another name elsewhere, since that file would be overwritten.
  private func refuseWhatIsPlanted() throws {
    for suffix in ["-wal", "-shm", "-journal"] {
      guard let status = try status(path + suffix), status.linkCount > 1 else { continue }
      throw StorageError(
        .unsupported,
        "\(path)\(suffix) is the same file as another one, by a hard link, which would be written over. Put a copy in its place."
      )
    }
  }

  /// The status of a file, or nil if there is none.
  ///
  /// - Throws: `StorageError` with code `unsupported` if it is not a regular file, but a symbolic link, for
  ///   instance.
  private func status(_ path: String) throws -> FileStatus? {
    guard let status = try FileStatus(atPath: path) else { return nil }
    guard status.isRegularFile else {
      let name =
        status.isSymbolicLink ? "a symbolic link" : status.isDirectory ? "a directory" : "a special file"
      throw StorageError(
        .unsupported, "\(path) is \(name) and not a file, so it cannot be part of a database.")
    }
    return status
  }

  /// Creates the database under a temporary name and renames it when it is complete, so that an empty file is
  /// never a new database, but always one that was truncated (rule F2). Returns its size.
  private func make() throws -> Int {
    try refuseWhatIsPlanted()
    if access("\(path)-wal", F_OK) == 0 {
      // SQLite would apply the log to the new database. Unless another process has just created it.
      if let size = try size() { return size }
      throw StorageError(.corrupted, "\(path) is missing: its write-ahead log is there without it.")
    }
    let unfinished = "\(file)-new-\(UUID().uuidString)"
    defer { unlink(unfinished) }
    try makeEmpty(unfinished)
    let connection = try SQLiteConnection(
      file: unfinished, path: unfinished, lockTimeout: options.lockTimeout)
    try connection.transaction(.beginWriting) {
      for statement in SQLiteEncoding.schema { try connection.execute(statement) }
      try connection.execute("PRAGMA application_id = \(SQLiteEncoding.applicationID)")
      try connection.execute("PRAGMA user_version = \(SQLiteEncoding.formatVersion)")
    }
    try useLog(connection)
    // Closed first, which checkpoints its log.
    connection.close()
    try FileManager.Directory.name(unfinished, file)
    guard let size = try size() else {
      throw StorageError(.io, "The database \(path) has been removed by another program.")
    }
    return size
  }

  /// Creates a file, with the permissions that SQLite will also give to the files beside it.
  private func makeEmpty(_ path: String) throws {
    // SQLite does not hold locks on it yet, which closing the descriptor would release.
    guard let file = try FileDescriptor.makeFile(atPath: path, options.permissions) else {
      throw StorageError.posix(EEXIST, "Making \(path) failed.")
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

  private func configure(_ connection: SQLiteConnection) throws {
    let durability = options.durability
    // Does nothing, unless the log has been removed.
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

  private func findTables(_ connection: SQLiteConnection) throws {
    try connection.run(.metadata) { _ = try $0.step() }
    _ = try connection.run(.exists) { statement in
      try statement.bind(UnsafeRawBufferPointer(start: nil, count: 0), at: 1)
      return try statement.step()
    }
  }
}
