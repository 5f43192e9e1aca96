import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Keeps entries in an SQLite database.
///
/// The engine for most uses: one ordinary file that survives crashes, can be shared between processes, and can be
/// looked into with `sqlite3`. Readers never wait for a writer. Values up to 1 GB, SQLite's own limit; a larger one
/// throws `StorageError.Code.valueTooLarge`.
///
/// On disk there is the database, `data.sqlite3` by default, and while it is open its write-ahead log and shared
/// memory beside it, with `-wal` and `-shm` at the end of their names. Removing entries leaves room in the file for
/// others; ``removeAllData()`` makes the file smaller.
///
/// In memory, the writer and each of the readers at the same time cache what they use of the database, up to
/// ``defaultCacheSize`` each unless `cacheSize:` says otherwise. Of the reads of many entries no more than 32 are under way at
/// the same time, each with a connection; the others wait. Reads of up to 8 keys, scans for up to 1,000 entries and counting do
/// not wait for them. Entries of up to 512 bytes with their keys are found fastest.
///
/// ## Durability
///
/// - `Durability.full`: the log is synced at each commit. Nothing acknowledged is lost when the machine dies.
/// - `Durability.process`: the log is synced before its contents move into the database. When the machine dies,
///   the last commits may be lost, latest first; the database itself stays whole.
///
/// Writes of tasks that write at the same time are committed together, with one sync for all of them.
///
/// A write whose sync fails throws. What it has written to the log is overwritten first, so that it does not come back when the
/// process dies. Only if the disk fails in that as well, and the process or the machine dies before the next write,
/// may the write be there afterwards, as a whole.
///
/// ## The log
///
/// The log moves into the database every 1,000 pages. If reads overlap, of this process or of others, so that it can never
/// start over, a write waits for them from 16 MiB on: a quarter of a second for each 16 MiB that the log is long. Only a
/// read that goes on for longer than that makes it grow further.
///
/// ## Files that are deleted, moved or replaced
///
/// An engine whose database, log or shared memory is deleted, moved or replaced, or the directory that they are in, throws
/// `StorageError.Code.io` from every call, and leaves alone what is there now; open another. Writes notice at once if a
/// directory further up is moved, reads within five milliseconds. A database that is overwritten in place, by `cp` for
/// instance, is not noticed: replace it with `mv`, while no engine is open on it.
///
/// A symbolic link, a pipe or a directory in place of one of the files is refused when opening. Directories may be
/// symbolic links.
///
/// ## Costs
///
/// Single keys are read on the thread of the caller: in microseconds if the system has the pages in memory, otherwise it waits for the
/// disk. Everything else runs on other threads.
///
/// A write or a removal costs O(log N) for each key and one sync for all, which concurrent calls share. ``removeAllData()``
/// costs O(N) and one sync, and another two if a megabyte or more becomes free, which the disk then gets back: at once, or with
/// the first write after every read of what was removed has ended. On a full disk it works as long as the log has room for
/// it, which takes a thousandth of the database's size.
///
/// ## Apple's systems
///
/// - In the container of an app group, several processes may use the same database. The system ends an app that it
///   suspends while the app has a lock on a file in such a container (`0xdead10cc`). The engine has locks as long as it is
///   open, so close it before the app is suspended, or keep the database in the app's own container.
/// - In the sandbox the engine needs write permission for the directory, not only for the database.
/// - Files take the data protection class of their directory. With `NSFileProtectionComplete`, calls throw `io` or
///   `permissionDenied` while the device is locked.
public final class SQLiteStorageEngine: BatchWritingEngine {
  /// The open database, or why it could not be opened.
  private let opened: Result<SQLiteDatabase, any Error>
  private let durability: Durability
  private let access: StorageAccess

  /// How many bytes of the database each connection keeps in memory at most, by default: 64 MiB, or
  /// 8 MiB where the system ends processes that take much memory (iOS, tvOS, visionOS, watchOS).
  public static let defaultCacheSize = isMemoryScarce ? 8 << 20 : 64 << 20

  private static var isMemoryScarce: Bool {
    #if os(iOS) || os(tvOS) || os(visionOS) || os(watchOS)
      true
    #else
      false
    #endif
  }

  /// Opens the database in a directory, or makes both (rules O1, O2).
  ///
  /// O(1), but for what a process that was killed has left in the log. Waits for the disk on the calling thread.
  ///
  /// - Parameters:
  ///   - directory: Where the database is.
  ///   - databaseFilename: Its name, to which `.sqlite3` is added.
  ///   - durability: When a write counts as done.
  ///   - permissions: Who may open the files. A database that is there keeps its permissions, and the log and the shared
  ///     memory always have those of the database.
  ///   - lockTimeout: How long to wait for another process that writes or recovers before throwing `locked`. It may wait
  ///     a few times as long in all.
  ///   - cacheSize: How many bytes of the database each connection keeps in memory at most: the one that writes, and as
  ///     many as there are reads at the same time, of which eight are kept for later ones. Nothing is taken that the
  ///     database does not have.
  ///   - access: Whether the engine may write. One that only reads makes no database, moves nothing from the log into it, and opens it
  ///     on read-only media as well, unless a process that died has left a log that is not empty. It has no change feed.
  /// - Throws: `StorageError` with code `corrupted` if the file is corrupted or no database, `unsupported` if it is
  ///   another program's, or if it or what belongs to it is a symbolic link or not a file, `readOnly`,
  ///   `permissionDenied`, `locked` if another process keeps it locked for that long, `diskFull` or `io`.
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

  /// The engine on the database `Data` in this program's directory for data.
  ///
  /// That is `<program>/Stockroom/Data` in the default storage directory, with the bundle identifier for the program, or
  /// the name of the executable where there is none. It is one engine for the whole program: two stores of different
  /// items need one each, such as `.default(appendingPath:)` gives.
  ///
  /// If it cannot be opened, each of its methods throws the reason, as long as the process lives.
  public static let `default` = SQLiteStorageEngine.default(appendingPath: "Data")

  /// An engine on a database in a directory below `<program>/Stockroom` in the default storage directory.
  ///
  /// Waits for the disk on the calling thread. If it cannot be opened, each of its methods throws the reason, so that a
  /// `static let` can hold it; make another engine to try again.
  public static func `default`(appendingPath path: String) -> SQLiteStorageEngine {
    deferringErrors(directory: .defaultStorageDirectory.ofProgram.appending(path))
  }

  /// An engine that throws from each of its methods why it could not be opened, or why there is no directory for it.
  package static func deferringErrors(
    directory: @autoclosure () throws -> FileManager.Directory, durability: Durability = .full
  ) -> SQLiteStorageEngine {
    let options = SQLiteOptions(
      durability: durability, permissions: .owner, lockTimeout: FileLock.defaultTimeout,
      cacheSize: defaultCacheSize)
    return SQLiteStorageEngine(
      opened: Result { try open(directory(), "data", options) }, durability: durability)
  }

  /// Everything but finding corruption within values, as SQLite keeps no checksums of its pages;
  /// `EngineCapabilities.durableWrites` only at `Durability.full`; `changeFeed` only for an engine that may write.
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

  /// Engines in this process and in others name the keys that they change, up to a thousand in one commit. What another program
  /// commits to the database is `everything`.
  ///
  /// As long as anybody subscribes, there is another file beside the database, with `-changes` at the end of its name.
  public func changes() async throws -> StorageChanges {
    try await database.changes()
  }

  /// Waits for what is under way, moves the log into the database and closes it (rule O3).
  ///
  /// Dropping the last reference does the same, on a thread of its own that nobody waits for.
  ///
  /// - Throws: `StorageError` with code `io` if the system has no thread to do so.
  public func close() async throws {
    // What could not be opened holds nothing.
    if case .success(let database) = opened { try await database.close() }
  }

  /// The database. Throws why there is none.
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
  /// The engine on the SQLite database in a directory. Takes what its initializer takes, and throws as that does.
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
