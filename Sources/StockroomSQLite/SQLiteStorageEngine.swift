import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Stores entries in an SQLite database.
///
/// The engine for most uses: a single ordinary file that survives crashes, can be shared between processes, and can be
/// inspected with `sqlite3`. Readers never wait for a writer. Values can be up to 1 GB, SQLite's own limit; larger ones throw
/// `StorageError.Code.valueTooLarge`.
///
/// On disk there is the database, `data.sqlite3` by default, and while it is open its write-ahead log and shared memory
/// next to it, whose names end in `-wal` and `-shm`. Removed entries leave space in the file for new ones;
/// ``removeAllData()`` makes the file smaller.
///
/// The writing connection and each connection that reads at the same time cache the pages they use in memory, by default up to
/// ``defaultCacheSize`` each. At most 32 reads of many entries run at the same time, each with a connection; others wait. Reads of
/// up to 8 keys, scans for up to 1,000 entries and counting do not wait for them. Entries of up to 512 bytes, key included, are
/// found fastest.
///
/// ## Durability
///
/// - `Durability.full`: the log is synced at each commit. Nothing acknowledged is lost if the machine crashes or loses power.
/// - `Durability.process`: the log is synced before it is checkpointed into the database. If the machine crashes or loses power,
///   the last commits may be lost, latest first; the database itself stays intact.
///
/// Concurrent writes are committed together, with one sync for all of them.
///
/// A write whose sync fails throws. Before that, the engine overwrites the failed commit in the log, so that a recovery of the log
/// does not restore it. If that fails too, the next write overwrites it before it is acknowledged. Only if the process or the
/// machine crashes before then may the failed write reappear, as a whole.
///
/// ## The log
///
/// The log is checkpointed into the database every 1,000 pages. If reads of this process or of others overlap all the time, the
/// log can never be restarted. From 16 MiB on, writes then wait for the reads: at most a quarter of a second for each 16 MiB of
/// the log. Only a read that takes longer than that makes the log grow further.
///
/// ## Files that are deleted, moved or replaced
///
/// If the database, the log, the shared memory or their directory is deleted, moved or replaced, every call throws
/// `StorageError.Code.io` and does not touch what is there now; open another engine. If a directory further up is moved, writes
/// detect that immediately, reads within a fraction of a millisecond. Overwriting a database in place, for instance with `cp`, is
/// not detected: replace it with `mv` while no engine has it open.
///
/// Opening refuses a symbolic link, a pipe or a directory in place of one of the files. Directories may be symbolic links.
///
/// ## Costs
///
/// Single keys are read on the caller's thread: in microseconds if the system has the pages in memory; otherwise the thread
/// waits for the disk. Everything else runs on other threads.
///
/// A write or a removal costs O(log N) for each key and one sync in all, which concurrent calls share. That includes the removal
/// of an absent key, since its removal by another engine may not have been synced. ``removeAllData()`` costs O(N) and one sync, and
/// another two if it frees a megabyte or more. That space is returned to the disk immediately, or with the first write after every
/// read of the removed entries has ended. On a full disk it works as long as the log has enough space, a thousandth of the
/// database's size.
///
/// SQLite maps an index of the log into memory, 32 KiB for each 16 MiB of the log. On Linux, if the blocks of the file system are smaller
/// than 4 KiB (an ext4 of less than 512 MiB usually has blocks of 1 KiB), SQLite does not allocate all of it in advance, and writing to it on
/// a full disk ends the process with SIGBUS. Nothing acknowledged is lost. Place the database on a file system with blocks of 4 KiB.
///
/// ## Apple's systems
///
/// - In the container of an app group, several processes may use the same database. The system terminates an app that is
///   suspended while it holds a lock on a file in such a container (`0xdead10cc`). The engine holds locks as long as it is
///   open, so close it before the app is suspended, or keep the database in the app's own container.
/// - In the sandbox the engine needs write permission for the directory, not only for the database.
/// - Files get the data protection class of their directory. With `NSFileProtectionComplete`, calls throw `io` or
///   `permissionDenied` while the device is locked.
public final class SQLiteStorageEngine: BatchWritingEngine {
  /// The open database, or the error of opening it.
  private let opened: Result<SQLiteDatabase, any Error>
  private let durability: Durability
  private let access: StorageAccess

  /// The default for the maximum number of bytes of the database that each connection caches: 64 MiB, or 8
  /// MiB if the system terminates processes that use much memory (iOS, tvOS, visionOS, watchOS).
  public static let defaultCacheSize = isMemoryScarce ? 8 << 20 : 64 << 20

  private static var isMemoryScarce: Bool {
    #if os(iOS) || os(tvOS) || os(visionOS) || os(watchOS)
      true
    #else
      false
    #endif
  }

  /// Opens the database in a directory, and creates both if they do not exist (rules O1, O2).
  ///
  /// O(1), except for recovering the log of a process that was killed. Blocks the calling thread while it waits for the disk.
  ///
  /// - Parameters:
  ///   - directory: The directory of the database.
  ///   - databaseFilename: The name of the database, without the extension `.sqlite3`.
  ///   - durability: When a write is acknowledged.
  ///   - permissions: Who may open the files. An existing database keeps its permissions, and the log and the shared memory
  ///     always have those of the database.
  ///   - lockTimeout: How long to wait for another process that writes or recovers before throwing `locked`. The total may be
  ///     a few times as long.
  ///   - cacheSize: How many bytes of the database each connection caches, at most: the writing one, and one for each concurrent
  ///     read, of which eight are kept open. A cache never takes more memory than the database is large.
  ///   - access: Whether the engine may write. A read-only engine creates no database, does not checkpoint the log, and also opens
  ///     a database on read-only media, unless a process that died has left a log that is not empty. It has no change feed.
  /// - Throws: `StorageError` with code `corrupted` if the file is corrupted or not a database, `unsupported` if it belongs to
  ///   another program, or if one of its files is a symbolic link or not a regular file, `readOnly`, `permissionDenied`,
  ///   `locked` if another process keeps it locked for longer than `lockTimeout`, `diskFull` or `io`.
  public init(
    directory: FileManager.Directory, databaseFilename: String = "data", durability: Durability = .full,
    permissions: FilePermissions = .owner, lockTimeout: Duration = .seconds(60),
    cacheSize: Int = SQLiteStorageEngine.defaultCacheSize, access: StorageAccess = .readWrite
  ) throws {
    let options = SQLiteOptions(
      durability: durability, permissions: permissions, lockTimeout: lockTimeout, cacheSize: cacheSize,
      access: access)
    opened = .success(try Self.open(directory, databaseFilename, options))
    self.durability = durability
    self.access = access
  }

  private init(opened: Result<SQLiteDatabase, any Error>, durability: Durability) {
    self.opened = opened
    self.durability = durability
    access = .readWrite
  }

  /// The engine on the database `Data` in this program's data directory.
  ///
  /// The directory is `<program>/Stockroom/Data` in the default storage directory, where `<program>` is the bundle identifier, or
  /// the name of the executable if there is none. The program has one such engine: stores of different items need one each, such
  /// as those that ``default(appendingPath:)`` makes.
  ///
  /// If the database cannot be opened, each method of the engine throws the reason until the process ends.
  public static let `default` = SQLiteStorageEngine.default(appendingPath: "Data")

  /// Opens a database in a directory below `<program>/Stockroom` in the default storage directory.
  ///
  /// Blocks the calling thread while it waits for the disk. If the database cannot be opened, each method of the engine throws the
  /// reason, so a `static let` can hold the engine; create another engine to try again.
  public static func `default`(appendingPath path: String) -> SQLiteStorageEngine {
    deferringErrors(directory: .defaultStorageDirectory.ofProgram.appending(path))
  }

  /// An engine each of whose methods throws the error of opening it, or the reason why there is no directory
  /// for it.
  package static func deferringErrors(
    directory: @autoclosure () throws -> FileManager.Directory, durability: Durability = .full
  ) -> SQLiteStorageEngine {
    let options = SQLiteOptions(
      durability: durability, permissions: .owner, lockTimeout: FileLock.defaultTimeout,
      cacheSize: defaultCacheSize)
    return SQLiteStorageEngine(
      opened: Result { try open(directory(), "data", options) }, durability: durability)
  }

  /// All capabilities except `detectsCorruption`, since SQLite keeps no checksums of its pages; `durableWrites` only at
  /// `Durability.full`; `changeFeed` only for an engine that may write.
  public var capabilities: EngineCapabilities {
    var always: EngineCapabilities = [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .multiProcess, .transactions,
      .preservesTimestamps,
    ]
    if access == .readWrite { always.insert(.changeFeed) }
    return durability == .full ? always.union(.durableWrites) : always
  }

  /// Commits the request together with those of concurrent calls, with which it shares the sync.
  package func commit(_ request: WriteRequest) async throws {
    try await database.commit(request)
  }

  package var changeHub: ChangeHub {
    get throws { try database.feed.hub }
  }

  /// Changes by engines in this and other processes are reported with their keys, up to a thousand for each commit. Commits of
  /// other programs are reported as `everything`.
  ///
  /// While there are subscribers, another file is next to the database, whose name ends in `-changes`.
  public func changes() async throws -> StorageChanges {
    try await database.changes()
  }

  /// Waits for calls in progress, checkpoints the log into the database and closes it (rule O3).
  ///
  /// Dropping the last reference does the same, asynchronously on the engine's thread.
  ///
  /// - Throws: `StorageError` with code `io` if the system cannot create a thread for it.
  public func close() async throws {
    // If the database could not be opened, there is nothing to close.
    if case .success(let database) = opened { try await database.close() }
  }

  /// The database. Throws the error of opening it.
  var database: SQLiteDatabase {
    get throws { try opened.get() }
  }

  private static func open(
    _ directory: FileManager.Directory, _ filename: String, _ options: SQLiteOptions
  ) throws -> SQLiteDatabase {
    guard !filename.isEmpty, !filename.utf8.contains(UInt8(ascii: "/")), !filename.utf8.contains(0) else {
      throw StorageError(.unsupported, "\(filename.debugDescription) is not the name of a file.")
    }
    if options.access == .readWrite { try directory.create(options.permissions) }
    return try SQLiteDatabase(
      SQLiteFile(filename + ".sqlite3", in: directory, options), lockTimeout: options.lockTimeout)
  }
}

extension SQLiteStorageEngine: CustomStringConvertible {
  /// The type of the engine, and the path of the database if it could be opened.
  public var description: String {
    let path = (try? opened.get())?.gate.path
    return "SQLiteStorageEngine" + (path.map { " on \($0)" } ?? "")
  }
}

extension StorageEngine where Self == SQLiteStorageEngine {
  /// The engine on the SQLite database in a directory. Has the parameters of the initializer of ``SQLiteStorageEngine``, and
  /// throws as it does.
  public static func sqlite(
    directory: FileManager.Directory, databaseFilename: String = "data", durability: Durability = .full,
    permissions: FilePermissions = .owner, lockTimeout: Duration = .seconds(60),
    cacheSize: Int = SQLiteStorageEngine.defaultCacheSize, access: StorageAccess = .readWrite
  ) throws -> SQLiteStorageEngine {
    try SQLiteStorageEngine(
      directory: directory, databaseFilename: databaseFilename, durability: durability,
      permissions: permissions,
      lockTimeout: lockTimeout, cacheSize: cacheSize, access: access)
  }
}
