import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Keeps entries in a LevelDB database: a log-structured merge tree.
///
/// Choose it where much is written and entries are small: a write appends to a log, and sorting happens later in
/// the background. It verifies a checksum on everything that it reads, and compresses what it stores. One process
/// at a time can have it open.
///
/// **Durability.** With `Durability.full` each write waits until the log is on disk; writes of several tasks at
/// the same time share the waiting. With `Durability.process` the operating system writes the log when it likes:
/// a machine that dies loses the last writes, in practice those of some seconds.
///
/// **Files.** In the directory `Stockroom.leveldb` below the one that the engine is opened on: LevelDB's own files,
/// `STOCKROOM`, which tells that the directory is the engine's, `STOCKROOM.closed` while it is closed, which tells corruption
/// from a crash, and `STOCKROOM.unsynced` for `Durability.process`. Nothing else is touched. LevelDB's tools may read the
/// database while it is closed; what they write is not counted. LevelDB makes its files with the process's `umask`; the
/// engine corrects their permissions, and the directory keeps others out from the beginning.
///
/// **While it is open** the directory belongs to the engine. If it is moved, deleted or replaced, or one of its files
/// is, every call throws `StorageError` with code `io`, and no other database is touched; moved back, it works again. A
/// read of up to eight keys notices within a few milliseconds, and within a fraction of one if it is the directory.
/// Tables are mapped into memory, where a page that a file does not have any more ends the process. A table that is
/// truncated, as by copying a backup over it, is found before everything is read, and by other calls when they look at
/// the files again, some milliseconds later; not in the middle of a read. To restore a backup, close the engine first.
///
/// **Corruption.** Opening finds what is missing, truncated or of the wrong size; a read, corruption in what it reads; ``verify()``,
/// all of it. What an engine wrote that was not closed is looked at as after a crash: what cannot be read at the end of the log counts
/// as not completely written, also if it is an acknowledged batch that has been corrupted since.
///
/// **Limits.** A value and the batches that are committed together must fit in memory a few times over, since
/// LevelDB has no way to read or write a part of a value.
///
/// **Costs.** Up to eight keys are read on the thread of the caller: in microseconds if the system has their blocks in memory, otherwise it
/// waits for the disk. Everything else runs on other threads. A write or a removal costs one look for each key and an append to
/// the log, and at `Durability.full` one sync that concurrent calls share. ``removeAllData()`` costs an append for each of the N entries; their room on the disk is freed
/// afterwards, in the background, some 8 MB at a time. A write meanwhile waits for one of these steps, which take some 20 to
/// 60 ms; reads do not.
///
/// **Apple's systems.** An app and its extensions cannot have a database in an app group's container open at the same
/// time: the second one throws `locked`. The engine holds a file lock (`flock`) as long as it is open; iOS ends an app with
/// 0xdead10cc that is suspended with such a lock in a shared container, so close the engine before. In the app's own
/// container, sandboxed or not, it needs no entitlement.
public final class LevelDBStorageEngine: BatchWritingEngine {
  /// Everything but several processes at once; `EngineCapabilities.durableWrites` only at `Durability.full`.
  public let capabilities: EngineCapabilities

  let gate: Gate
  let connection: LevelDBConnection
  package var changeHub: ChangeHub { connection.changeHub }
  private let committer: GroupCommitter<WriteRequest>
  let thread = DedicatedThread()

  /// Opens the database below the directory, and makes both if they are missing (rule O1).
  ///
  /// Takes the time of a few syncs and of a look at each table file (rule O6); if the engine before was not closed, or had no room
  /// for it, also that of moving the log, which has up to 8 MB or one batch, to a table.
  ///
  /// - Parameters:
  ///   - directory: Where to keep the database.
  ///   - durability: What a write waits for.
  ///   - permissions: Who may open the files.
  /// - Throws: `StorageError` with code `locked` if it is open already, in this process or in another one (rules
  ///   C2, C3); `unsupported` if the directory is another program's LevelDB database; `corrupted` if files have
  ///   been corrupted (rule F2); `readOnly`, `permissionDenied`, `diskFull` or `io` as the system says (rule O2).
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
    // The closure must not hold the engine, which would never go away.
    committer = GroupCommitter(on: thread) { try connection.commit($0) }
  }

  /// Waits for no more than LevelDB must: the last reference may be dropped on a thread of the cooperative pool
  /// (rule C5).
  deinit {
    changeHub.finish()
    thread.stop()
    connection.close(easingOpening: false)
  }

  /// LevelDB counts the bytes of a value in 32 bits, and does not check whether they are enough. Half of that leaves room
  /// for what it puts around it in a table.
  package static let valueLimit: ValueLimit? = ValueLimit(
    of: "LevelDB", 0x7FFF_FFFF - EntryHeader.encodedSize)

  /// Commits the request together with those of concurrent calls, with which it shares the sync.
  package func commit(_ request: WriteRequest) async throws {
    try await gate.whileOpen {
      if request.isEmpty { return }
      try await committer.submit(request)
    }
  }

  /// No other process can have the database open, so that all elements name their keys, as long as they are not too many.
  public func changes() async throws -> StorageChanges {
    try await gate.whileOpen { changeHub.subscribe(without: ChangeOrigin.current) }
  }

  /// Waits for what is under way, then releases the files (rule O3).
  ///
  /// Costs a few syncs, the time of moving up to 8 MB, or one batch, from the log to a table, and that of a compaction that is
  /// running or due then. Without it, dropping the last reference releases the files as well, but the next opening moves that
  /// log, and cannot tell corruption at its end from a crash.
  public func close() async throws {
    try await gate.close {
      changeHub.finish()
      defer { thread.stop() }
      do {
        try await thread.run { [connection] in connection.close(easingOpening: true) }
      } catch {
        // There can be no thread that would wait for the disk. What is released without one is.
        connection.close(easingOpening: false)
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
