import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Stores entries in an LMDB database: a B+ tree in a memory-mapped file.
///
/// Choose it for the fastest reads. A read is a search in memory that is shared with the system's file cache, and waits for a write
/// only if that write enlarges the map. Values can have any size, keys are in byte order, and several processes can use the
/// database at once. At `Durability.full`, each single write waits for the disk twice; concurrent writes share these waits.
///
/// ## Durability
/// With `Durability.full` an acknowledged write is on disk. With `Durability.process` every write still waits once, until its
/// pages are on disk, but not for the page that makes them current: if the machine crashes or loses power, the last writes may be
/// undone, each as a whole and latest first, and the database stays intact. Engines with different settings may be open on the same place; a
/// write at `full` also makes the writes before it durable.
///
/// ## Files
/// The entries are in `data.mdb`, the table of readers in `lock.mdb`. While the engine writes, `data.mdb` appears
/// larger than its contents: at least 1 MiB, and usually up to about twice the contents. Of the extra part, only a
/// reserve of 64 KiB takes space on disk, and closing trims it. Removed entries leave space for new ones; the file
/// itself does not become smaller. The database must be on a local file system. Corruption of the database's structure
/// is detected no later than when a call reads the corrupted part; corruption within values is not detected.
///
/// If the files are deleted, moved or replaced while the engine is open, its calls throw `io`. Every write and every
/// read of many entries notices immediately. Reads of up to eight keys notice within a fraction of a millisecond, and
/// continue to work if only `lock.mdb` is missing. If another program truncates a file while it is being read, the
/// process ends with a signal (SIGBUS), as with every database that maps its files into memory: to restore a backup,
/// replace the file instead of overwriting it.
///
/// A process that is stopped in the middle of a write, for example by a debugger, blocks the writes of all other
/// processes until it continues or ends: LMDB's own lock has no timeout, so a write waits instead of throwing `locked`.
/// `lockTimeout` applies to opening and closing, and to a write or read that reopens the database after LMDB has failed
/// permanently.
///
/// ## Costs
/// Up to eight keys are read on the caller's thread: in microseconds if the system has the pages in memory; otherwise the thread
/// waits for the disk. Everything else runs on other threads.
///
/// A write or a removal costs O(log N) for each key, in one transaction whose syncs concurrent calls share; removing
/// everything costs O(N) in pages, not in bytes. At `full`, the removal of an absent key waits for the disk as well,
/// since the removal that made it absent may not be on disk yet if it was done at `process`. A removal copies pages, as
/// every write does. For removals on a full disk, the engine reserves 64 KiB behind the database from its first write
/// until it is closed, if the disk has room for that; if the reserve is not enough, a removal throws `diskFull` too.
///
/// ## Apple's systems
/// LMDB syncs with `fsync`, which on these systems leaves the data in the disk's cache: at either durability, a power cut can cost
/// the last writes, and even the database. An open engine holds locks on `lock.mdb`, and the system terminates an app that is
/// suspended while it holds a lock in the container of an app group (`0xdead10cc`), so close the engine before that. In a sandbox,
/// LMDB cannot be opened (`permissionDenied`), unless it was built with semaphore names that begin with the name of an app group.
///
/// ## Several engines
/// Engines on the same place, in one process or in several, share it. After a fork, the child process must not use the
/// engines of its parent.
///
/// LMDB distinguishes processes and threads by their identifiers, which containers assign independently, so all processes that have
/// a place open at the same time must be in one container. Opening throws `locked` if two processes have the same identifier. Equal
/// identifiers of threads cannot be detected: if one of two such threads dies while it waits for the write of the other, a third
/// process may write at the same time and corrupt the database.
public final class LMDBStorageEngine: BatchWritingEngine {
  let gate: Gate
  let shared: LMDBSharedEnvironment
  let durability: Durability
  private let isReleased = MutexProtected(false)
  package var changeHub: ChangeHub { shared.environment.feed.hub }

  /// Opens the database in a directory, and creates both if they do not exist.
  ///
  /// Costs the same for any number of entries, unless `verifiesOnOpening` is set.
  ///
  /// - Parameters:
  ///   - directory: The directory of `data.mdb` and `lock.mdb`. Preferably it contains nothing else.
  ///   - durability: When a write is acknowledged.
  ///   - permissions: Who may open the files and directories that the engine creates.
  ///   - lockTimeout: How long to wait for other processes that are opening or closing the database.
  ///   - verifiesOnOpening: Whether to verify the database first, as ``verify()`` does. O(N).
  /// - Throws: `StorageError` with code `corrupted` if `data.mdb` is not an LMDB file, has been truncated, or is corrupted in its
  ///   header or the roots of its trees; `unsupported` if it belongs to another program or is not a regular file; `locked` if another
  ///   process has kept it locked for `lockTimeout`, or has the same process identifier in another container; `readOnly`,
  ///   `permissionDenied`, `diskFull` or `io` if the system does not allow it to be opened (rules O2, F2, F3). An
  ///   existing database keeps its contents in that case.
  public init(
    directory: FileManager.Directory, durability: Durability = .full, permissions: FilePermissions = .owner,
    lockTimeout: Duration = .seconds(60), verifiesOnOpening: Bool = false
  ) throws {
    shared = try LMDBRegistry.environment(in: directory, permissions: permissions, lockTimeout: lockTimeout)
    gate = Gate(path: directory.path)
    self.durability = durability
    // An error here releases the engine, whose deinitializer releases the environment.
    if verifiesOnOpening { try shared.verify() }
  }

  deinit {
    // The last reference may be dropped on a thread of the cooperative pool, which must not be blocked, and a check of
    // the feed may wait for other processes (rule C5).
    shared.environment.feed.finishWithoutWaiting(of: ObjectIdentifier(self))
    // No call is in progress: each holds a reference.
    if release() { shared.drop() }
  }

  /// All capabilities except `detectsCorruption` and `networked`; `durableWrites` only at `Durability.full`, and not on
  /// Apple's systems.
  public var capabilities: EngineCapabilities {
    let always: EngineCapabilities = [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .multiProcess, .transactions,
      .changeFeed, .preservesTimestamps,
    ]
    #if canImport(Darwin)
      // LMDB syncs with fsync, which leaves the data in the memory of the disk on these systems. F_FULLFSYNC
      // after a commit would not suffice: the page that makes the others current could reach the disk before
      // them.
      return always
    #else
      return durability == .full ? always.union(.durableWrites) : always
    #endif
  }

  /// LMDB writes a large value, preceded by the header of its first page, with one system call. Linux limits such a
  /// call to 2 GiB minus a page of memory, which has up to 64 KiB.
  package static let valueLimit: ValueLimit? = ValueLimit(
    of: "LMDB", (1 << 31) - (1 << 16) - LMDBPage.headerSize - EntryHeader.encodedSize)

  /// Commits the request as one transaction, together with those of concurrent calls.
  package func commit(_ request: WriteRequest) async throws {
    try await gate.whileOpen {
      if request.isEmpty { return }
      try await shared.committer.submit(LMDBRequest(request: request, durability: durability))
    }
  }

  /// Changes by engines in this and other processes are reported with their keys, up to a thousand for each commit. Commits of
  /// other programs are reported as `everything`.
  ///
  /// While there are subscribers, the file `changes.log` is in the directory.
  public func changes() async throws -> StorageChanges {
    try await gate.whileOpen {
      try Task.checkCancellation()
      let (owner, origin) = (ObjectIdentifier(self), ChangeOrigin.current)
      return try await shared.thread.run { [environment = shared.environment, thread = shared.thread] in
        try environment.subscribe(of: owner, without: origin, on: thread)
      }
    }
  }

  /// Waits for calls in progress and releases the database. The last engine of the process on a place closes the database.
  ///
  /// May be called any number of times. Afterwards all other methods throw `closed` (rule O3).
  public func close() async throws {
    try await gate.close {
      shared.environment.feed.finishWithoutWaiting(of: ObjectIdentifier(self))
      if release() { await shared.shutDown() }
    }
  }

  /// Releases the environment on the first call.
  ///
  /// - Returns: Whether this was the last engine on the database, whose environment must then be closed.
  private func release() -> Bool {
    let isFirst = isReleased.withLock { isReleased in
      defer { isReleased = true }
      return !isReleased
    }
    return isFirst && LMDBRegistry.release(shared)
  }
}

extension LMDBStorageEngine: CustomStringConvertible {
  /// The type of the engine, and the directory.
  public var description: String { "LMDBStorageEngine on \(gate.path)" }
}

extension StorageEngine where Self == LMDBStorageEngine {
  /// An LMDB database in a directory. See
  /// ``LMDBStorageEngine/init(directory:durability:permissions:lockTimeout:verifiesOnOpening:)``.
  public static func lmdb(
    directory: FileManager.Directory, durability: Durability = .full, permissions: FilePermissions = .owner,
    lockTimeout: Duration = .seconds(60), verifiesOnOpening: Bool = false
  ) throws -> LMDBStorageEngine {
    try LMDBStorageEngine(
      directory: directory, durability: durability, permissions: permissions, lockTimeout: lockTimeout,
      verifiesOnOpening: verifiesOnOpening)
  }
}
