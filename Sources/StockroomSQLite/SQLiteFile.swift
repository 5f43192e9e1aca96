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
  /// The size of the cache of each connection, in bytes.
  var cacheSize: Int
  var access = StorageAccess.readWrite
}

/// The path of a database. Creates and opens the database, and changes no file that is not a database of this engine.
struct SQLiteFile: Sendable {
  /// The path as the caller gave it, for messages.
  let path: String
  /// The same path with the directory's symbolic links resolved, since SQLite is opened to follow none (rule
  /// O5).
  let file: String
  let options: SQLiteOptions
  /// The status of the database before it was opened, if SQLite opens it as immutable, so that it needs no files beside it. Nil
  /// otherwise.
  let immutableStatus: FileStatus?
  private var isImmutable: Bool { immutableStatus != nil }
  var isReadOnly: Bool { options.access == .readOnly }

  /// The file of this name in an existing directory.
  init(_ name: String, in directory: FileManager.Directory, _ options: SQLiteOptions) throws {
    path = Self.path(name, in: directory.path)
    file = Self.path(name, in: try directory.resolvedPath)
    self.options = options
    immutableStatus = try options.access == .readOnly ? Self.statusIfImmutable(file) : nil
  }

  /// The status of the database, if no log can be created beside it and there is none that must be read. Nil otherwise.
  private static func statusIfImmutable(_ file: String) throws -> FileStatus? {
    if try isWritable(file) { return nil }
    // Read first, so that later changes are detected.
    let status = try FileStatus(atPath: file)
    let hasSharedMemory = try FileStatus(atPath: file + "-shm") != nil
    guard let log = try FileStatus(atPath: file + "-wal") else { return status }
    // If there is shared memory, the process that created it may be writing. SQLite can read both files without write permission.
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
    try removeAbandoned()
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
      // SQLite creates the log and the shared memory, which a backup lacks, with the first read.
      _ = try headerField("user_version", connection)
    }
    return connection
  }

  /// Opens the database for an engine that only reads. The contents of the log are not checkpointed.
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
  func size() throws -> Int? {
    try status(path)?.size
  }

  func hasLog() throws -> Bool { try status(path + "-wal").map { $0.size > 0 } ?? false }

  /// Throws if anything that SQLite opens beside the database is not a regular file, such as a pipe, which would block it, or has
  /// a second hard link, since the file under that name would be overwritten.
  func refuseWhatIsPlanted() throws {
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
  func status(_ path: String) throws -> FileStatus? {
    guard let status = try FileStatus(atPath: path) else { return nil }
    guard status.isRegularFile else {
      let name =
        status.isSymbolicLink ? "a symbolic link" : status.isDirectory ? "a directory" : "a special file"
      throw StorageError(
        .unsupported, "\(path) is \(name) and not a file, so it cannot be part of a database.")
    }
    return status
  }
}
