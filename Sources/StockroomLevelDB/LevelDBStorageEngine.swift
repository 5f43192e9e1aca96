import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Stores entries in a LevelDB database: a log-structured merge tree.
///
/// Choose it for many writes of small entries: a write appends to a log, which is sorted later in the background. LevelDB verifies a
/// checksum of everything that it reads, and compresses what it stores. Only one process at a time can have the database open.
///
/// **Durability.** With `Durability.full` each write waits until the log is on disk; concurrent writes share the wait. With
/// `Durability.process` the operating system writes the log when it chooses: if the machine crashes or loses power, the last writes
/// are lost, usually those of a few seconds.
///
/// **Files.** The directory `Stockroom.leveldb`, below the engine's directory, contains LevelDB's own files and these:
/// `STOCKROOM` marks the directory as the engine's, `STOCKROOM.closed` exists while the database is closed and
/// distinguishes corruption from a crash, and `STOCKROOM.unsynced` exists if logs were written without syncs, at
/// `Durability.process`. No other files are changed. LevelDB's tools may read the database while it is closed; entries
/// that they write are not counted. LevelDB creates its files with the process's `umask`; the engine corrects their
/// permissions, and the permissions of the directory deny access to others from the beginning.
///
/// **While it is open,** the directory belongs to the engine. If the directory or one of its files is moved, deleted or
/// replaced, every call throws `StorageError` with code `io`, and no other database is changed; after it is moved back,
/// the engine works again. Reads of up to eight keys notice within a fraction of a millisecond. Tables are
/// memory-mapped, and accessing a page that the file no longer has ends the process. A truncated table, such as one
/// over which a backup is copied, is detected at the beginning of a read of everything, and by other calls when they
/// check the files again some milliseconds later, but not in the middle of a read. To restore a backup, close the
/// engine first.
///
/// **Corruption.** Opening detects files that are missing, truncated or of the wrong size, a read detects corruption in
/// the blocks that it reads, and ``verify()`` detects corruption anywhere in the tables and the manifest. If an engine
/// was not closed, its files are treated as after a crash: an unreadable end of the log counts as incompletely written,
/// even if it is an acknowledged batch that was corrupted later.
///
/// **Limits.** A value, and the batches that are committed together, must fit into memory several times, since LevelDB cannot read
/// or write a part of a value.
///
/// **Costs.** Up to eight keys are read on the caller's thread: in microseconds if the system has their blocks in memory; otherwise
/// the thread waits for the disk. Everything else runs on other threads. A write or a removal costs one lookup for each key and an
/// append to the log, and at `Durability.full` one sync, which concurrent calls share. ``removeAllData()`` costs an append for each
/// of the N entries; their disk space is freed afterwards in the background, in steps of about 8 MB. Meanwhile, a write waits for
/// one of these steps, which take about 20 to 60 ms; reads do not wait.
///
/// **Apple's systems.** An app and its extensions cannot have a database in the container of an app group open at the same time:
/// the second one throws `locked`. An open engine holds a file lock (`flock`), and iOS terminates an app that is suspended while it
/// holds such a lock in a shared container (`0xdead10cc`), so close the engine before that. In the app's own container, sandboxed
/// or not, the engine needs no entitlement.
public final class LevelDBStorageEngine: BatchWritingEngine {
  /// All capabilities except `multiProcess` and `networked`; `durableWrites` only at `Durability.full`.
  public let capabilities: EngineCapabilities

  let gate: Gate
  let connection: LevelDBConnection
  package var changeHub: ChangeHub { connection.changeHub }
  private let committer: GroupCommitter<WriteRequest>
  let thread = DedicatedThread()

  /// Opens the database below the directory, and creates both if they do not exist (rule O1).
  ///
  /// Takes a few syncs and a check of each table file (rule O6). If the previous engine was not closed, or could not
  /// move its log for lack of space when it was closed, opening also moves the log, of up to 8 MB or one batch, to a
  /// table.
  ///
  /// - Parameters:
  ///   - directory: The directory in which the database is stored.
  ///   - durability: When a write is acknowledged.
  ///   - permissions: Who may open the files.
  /// - Throws: `StorageError` with code `locked` if the database is open already, in this process or in another one
  ///   (rules C2, C3); `unsupported` if the directory belongs to another program or was made by another version of this
  ///   engine; `corrupted` if files have been corrupted (rule F2); `readOnly`, `permissionDenied`, `diskFull` or `io`
  ///   for errors of the system (rule O2).
  public init(
    directory: FileManager.Directory, durability: Durability = .full, permissions: FilePermissions = .owner
  ) throws {
    let always: EngineCapabilities = [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .detectsCorruption, .transactions,
      .changeFeed, .preservesTimestamps,
    ]
    capabilities = durability == .full ? always.union(.durableWrites) : always
    gate = Gate(path: directory.path)
    let connection = try LevelDBConnection(
      directory: directory, durability: durability, permissions: permissions)
    self.connection = connection
    // The closure must not retain the engine, which would then never be released.
    committer = GroupCommitter(on: thread) { try connection.commit($0) }
  }

  /// Does not wait for a compaction: the last reference may be dropped on a thread of the cooperative pool (rule
  /// C5).
  deinit {
    changeHub.finish()
    connection.release(on: thread)
  }

  /// LevelDB counts the bytes of a value in 32 bits, and does not check for overflow. Half of that range leaves room
  /// for the data that LevelDB adds in a table.
  package static let valueLimit: ValueLimit? = ValueLimit(
    of: "LevelDB", 0x7FFF_FFFF - EntryHeader.encodedSize)

  /// Commits the request together with those of concurrent calls, with which it shares the sync.
  package func commit(_ request: WriteRequest) async throws {
    try await gate.whileOpen {
      if request.isEmpty { return }
      try await committer.submit(request)
    }
  }

  /// A feed of every change, with its keys unless there are too many, since no other process can have the database open.
  public func changes() async throws -> StorageChanges {
    try await gate.whileOpen { changeHub.subscribe(without: ChangeOrigin.current) }
  }

  /// Waits for calls in progress, then releases the files (rule O3).
  ///
  /// Takes a few syncs, moving up to 8 MB or one batch from the log to a table, and a compaction if one is running or
  /// due. Dropping the last reference releases the files as well, on another thread, and the next opening waits for
  /// that. But then the next opening moves the log, and cannot distinguish corruption at the end of the log from a
  /// crash.
  public func close() async throws {
    try await gate.close {
      changeHub.finish()
      defer { thread.stop() }
      do {
        try await thread.run { [connection] in connection.close(writingMarker: true) }
      } catch {
        // No thread can be created that would wait for the disk. Closes without moving the log and without the marker.
        connection.close(writingMarker: false)
        throw error
      }
    }
  }
}

extension LevelDBStorageEngine: CustomStringConvertible {
  /// The type of the engine, and the directory.
  public var description: String { "LevelDBStorageEngine on \(gate.path)" }
}

extension StorageEngine where Self == LevelDBStorageEngine {
  /// A LevelDB engine. See ``LevelDBStorageEngine/init(directory:durability:permissions:)``.
  ///
  /// - Throws: `StorageError` as the initializer does.
  public static func levelDB(
    directory: FileManager.Directory, durability: Durability = .full, permissions: FilePermissions = .owner
  ) throws -> Self {
    try LevelDBStorageEngine(directory: directory, durability: durability, permissions: permissions)
  }
}
