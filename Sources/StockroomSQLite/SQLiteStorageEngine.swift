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
/// others; it does not make the file smaller.
///
/// In memory, the writer and each of the readers at the same time cache what they use of the database, up to 64 MB each.
/// Entries of up to 512 bytes with their keys are found fastest.
///
/// ## Durability
///
/// - `Durability.full`: the log is synced at each commit. Nothing acknowledged is lost when the machine dies.
/// - `Durability.process`: the log is synced before its contents move into the database. When the machine dies,
///   the last commits may be lost, latest first; the database itself stays whole.
///
/// Writes of tasks that write at the same time are committed together, with one sync for all of them.
public final class SQLiteStorageEngine: StorageEngine {
  /// The open database, or why it could not be opened.
  private let opened: Result<SQLiteDatabase, any Error>
  private let durability: Durability

  /// Opens the database in a directory, or makes both (rules O1, O2).
  ///
  /// Waits for the disk on the calling thread.
  ///
  /// - Parameters:
  ///   - directory: Where the database is.
  ///   - databaseFilename: Its name, to which `.sqlite3` is added.
  ///   - durability: When a write counts as done.
  /// - Throws: `StorageError` with code `corrupted` if the file is damaged or no database, `unsupported` if it is
  ///   another program's, `readOnly`, `permissionDenied`, `locked` if another process keeps it locked for a
  ///   minute, `diskFull` or `io`.
  public init(
    directory: FileManager.Directory, databaseFilename: String = "data", durability: Durability = .full
  ) throws {
    opened = .success(try Self.open(directory, databaseFilename, durability))
    self.durability = durability
  }

  private init(opened: Result<SQLiteDatabase, any Error>, durability: Durability) {
    self.opened = opened
    self.durability = durability
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
    SQLiteStorageEngine(
      opened: Result { try open(directory(), "data", durability) }, durability: durability)
  }

  /// Everything but finding damage within values, as SQLite keeps no checksums of its pages;
  /// `EngineCapabilities.durableWrites` only at `Durability.full`.
  public var capabilities: EngineCapabilities {
    let always: EngineCapabilities = [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .multiProcess,
    ]
    return durability == .full ? always.union(.durableWrites) : always
  }

  /// Waits for what is under way, moves the log into the database and closes it (rule O3).
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
    _ directory: FileManager.Directory, _ filename: String, _ durability: Durability
  ) throws -> SQLiteDatabase {
    guard !filename.isEmpty, !filename.contains("/"), !filename.utf8.contains(0) else {
      throw StorageError(.unsupported, "\(filename.debugDescription) is not the name of a file.")
    }
    try directory.create()
    let file = directory.url.appending(path: filename + ".sqlite3", directoryHint: .notDirectory)
    return try SQLiteDatabase(path: file.path(percentEncoded: false), durability: durability)
  }
}

extension StorageEngine where Self == SQLiteStorageEngine {
  /// The engine on the SQLite database in a directory. Throws as its initialiser does.
  public static func sqlite(
    directory: FileManager.Directory, databaseFilename: String = "data", durability: Durability = .full
  ) throws -> SQLiteStorageEngine {
    try SQLiteStorageEngine(directory: directory, databaseFilename: databaseFilename, durability: durability)
  }
}
