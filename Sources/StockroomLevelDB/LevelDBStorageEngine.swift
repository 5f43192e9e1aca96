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
/// `STOCKROOM`, which tells that the directory is the engine's, and, while it is closed, `STOCKROOM.closed`, which
/// tells damage from a crash. Nothing else is touched.
///
/// **Limits.** A value and the batches that are committed together must fit in memory a few times over, since
/// LevelDB has no way to read or write a part of a value.
public final class LevelDBStorageEngine: StorageEngine {
  /// Everything but several processes at once; `EngineCapabilities.durableWrites` only at `Durability.full`.
  public let capabilities: EngineCapabilities

  let gate: Gate
  let connection: LevelDBConnection
  let committer: GroupCommitter<[StorageOperation]>
  private let thread = OwnThread()

  /// Opens the database below the directory, and makes both if they are missing (rule O1).
  ///
  /// Takes the time of a few syncs, a look at each table file, and, after a crash, of reading the log.
  ///
  /// - Throws: `StorageError` with code `locked` if it is open already, in this process or in another one (rules
  ///   C2, C3); `unsupported` if the directory is another program's LevelDB database; `corrupted` if files have
  ///   been damaged (rule F2); `readOnly`, `permissionDenied`, `diskFull` or `io` as the system says (rule O2).
  public init(directory: FileManager.Directory, durability: Durability = .full) throws {
    let always: EngineCapabilities = [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .detectsCorruption,
    ]
    capabilities = durability == .full ? always.union(.durableWrites) : always
    gate = Gate(path: directory.path)
    let connection = try LevelDBConnection(directory: directory, durability: durability)
    self.connection = connection
    // The closure must not hold the engine, which would never go away.
    committer = GroupCommitter(on: thread) { try connection.commit($0) }
  }

  deinit {
    thread.stop()
    connection.close()
  }

  /// Waits for what is under way, then releases the files (rule O3).
  ///
  /// Costs a few syncs, and the time that a running compaction takes to stop.
  public func close() async throws {
    try await gate.close {
      try await thread.run { [connection] in connection.close() }
      thread.stop()
    }
  }
}

extension StorageEngine where Self == LevelDBStorageEngine {
  /// A LevelDB engine. See ``LevelDBStorageEngine/init(directory:durability:)``.
  ///
  /// - Throws: `StorageError` as the initialiser does.
  public static func levelDB(directory: FileManager.Directory, durability: Durability = .full) throws -> Self
  {
    try LevelDBStorageEngine(directory: directory, durability: durability)
  }
}
