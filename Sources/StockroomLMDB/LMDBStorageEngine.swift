import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An engine that keeps entries in an LMDB database: a B+ tree in a file that is mapped into memory.
///
/// Choose it for the fastest reads. A read is a search in memory that is shared with the system's file cache, and waits
/// for a write only if that makes the map larger. Values of any size, keys in byte order, several
/// processes at once. Writes of single entries wait for the disk twice each at `Durability.full`; many tasks
/// that write at the same time share that.
///
/// ## Durability
/// With `Durability.full` an acknowledged write is on disk. With `Durability.process` every write still waits
/// once, for its pages, but not for the page that makes them the current ones: when the machine dies, the last of
/// the writes may be undone, as a whole and from the end, and the database stays sound. Engines with
/// different settings may be open on the same place; a write of a full one makes those before it durable too.
///
/// ## Files
/// `data.mdb` with everything, `lock.mdb` with the table of readers. While the engine writes, `data.mdb` may look
/// up to twice as large as its contents (what is added takes no room on disk), and closing trims it. Removed
/// entries leave room for later ones; the file itself does not become smaller. The database must be on a local
/// file system. Corruption of what holds it together is recognized at the latest when a call meets it; corruption within
/// values is not.
///
/// If the files are deleted, moved or replaced while the engine is open, its calls throw `io`. It notices this at every
/// write and every read of many, and within a fraction of a millisecond at reads of single keys, which go on if only
/// `lock.mdb` is missing. Files that another program cuts off in the very moment in which they are being read end the
/// process with a signal (SIGBUS), as in every database that maps its files into memory: restore a backup by giving it
/// the place of the file, not by writing over it.
///
/// A process that stops in the middle of a write, in a debugger perhaps, keeps all others from writing until it goes on or
/// ends: LMDB's own lock has no time limit, so this engine never throws `locked` from a write. `lockTimeout` is for opening and
/// closing only.
///
/// ## Costs
/// Up to eight keys are read on the thread of the caller: in microseconds if the system has the pages in memory, otherwise it waits for
/// the disk. Everything else runs on other threads.
///
/// A write or a removal costs O(log N) for each key, as one transaction whose syncs concurrent calls share; to remove
/// everything costs O(N) in pages, not in bytes. A removal changes copies of pages, as every write does. For removals on a full
/// disk the engine keeps 64 KiB behind the database while it is open; if those do not suffice, it throws `diskFull` too.
///
/// ## Apple's systems
/// LMDB syncs with `fsync`, which there leaves the data in the memory of the disk: a power cut can cost the last writes, and
/// even the database, whatever the durability. An engine that is open holds locks on `lock.mdb`: in the container of an
/// app group the system ends an app that is suspended meanwhile (`0xdead10cc`), so close the engine before. In a sandbox
/// LMDB cannot be opened (`permissionDenied`), unless it was built with names of semaphores that begin with those of an app
/// group.
///
/// ## Several engines
/// Engines on the same place share what they open and may be in one process or in several. One in a process that
/// has been forked must not be used there.
public final class LMDBStorageEngine: BatchWritingEngine {
  let gate: Gate
  let shared: LMDBSharedEnvironment
  let durability: Durability
  private let isReleased = MutexProtected(false)
  package var changeHub: ChangeHub { shared.environment.feed.hub }

  /// Opens the database in a directory, and creates both if they do not exist.
  ///
  /// Costs the same whatever the number of entries, unless it verifies them.
  ///
  /// - Parameters:
  ///   - directory: Where `data.mdb` and `lock.mdb` are. The directory is best left to the engine alone.
  ///   - durability: When a write is acknowledged.
  ///   - permissions: Who may open the files and directories that are made.
  ///   - lockTimeout: How long to wait for other processes that are opening or closing the database.
  ///   - verifiesOnOpening: Whether to do first what ``verify()`` does. O(N).
  /// - Throws: `StorageError` with code `corrupted` if `data.mdb` is no LMDB file, is corrupted in its header or the roots of its
  ///   trees, or has been truncated; `unsupported` if it is another program's or no file; `locked` if another process has
  ///   kept it locked for as long as `lockTimeout`, or uses the same process identifier in another container; `readOnly`,
  ///   `permissionDenied`, `diskFull` or `io` if the system does not let it be opened (rules O2, F2, F3). Nothing has been
  ///   touched then.
  public init(
    directory: FileManager.Directory, durability: Durability = .full, permissions: FilePermissions = .owner,
    lockTimeout: Duration = .seconds(60), verifiesOnOpening: Bool = false
  ) throws {
    shared = try LMDBRegistry.environment(in: directory, permissions: permissions, lockTimeout: lockTimeout)
    gate = Gate(path: directory.path)
    self.durability = durability
    // What throws here releases the engine, whose deinitializer releases the environment.
    if verifiesOnOpening { try shared.verify() }
  }

  deinit {
    shared.environment.feed.finish(of: ObjectIdentifier(self))
    // No call is under way: each holds a reference.
    if release() { shared.drop() }
  }

  /// Everything but `EngineCapabilities.detectsCorruption`; `durableWrites` only at `Durability.full`, and not on Apple's
  /// systems.
  public var capabilities: EngineCapabilities {
    let always: EngineCapabilities = [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .multiProcess, .transactions,
      .changeFeed, .preservesTimestamps,
    ]
    #if canImport(Darwin)
      // LMDB syncs with fsync, which there leaves the data in the memory of the disk. F_FULLFSYNC after a commit would not
      // do: the page that makes the others the current ones could reach the disk before them.
      return always
    #else
      return durability == .full ? always.union(.durableWrites) : always
    #endif
  }

  /// LMDB writes a large value with one call of the system, which writes no more than 2 GiB less a page of memory, of up to
  /// 64 KiB, at a time. The value's first page begins with a header of its own.
  package static let valueLimit: ValueLimit? = ValueLimit(
    of: "LMDB", (1 << 31) - (1 << 16) - LMDBPage.headerSize - EntryHeader.encodedSize)

  /// Commits the request as one transaction, together with those of concurrent calls.
  package func commit(_ request: WriteRequest) async throws {
    try await gate.whileOpen {
      if request.isEmpty { return }
      try await shared.committer.submit(LMDBRequest(request: request, durability: durability))
    }
  }

  /// Engines in this process and in others name the keys that they change, up to a thousand in one commit. What another program
  /// commits to the database is `everything`.
  ///
  /// As long as anybody subscribes, there is a file `changes.log` in the directory.
  public func changes() async throws -> StorageChanges {
    try await gate.whileOpen {
      try Task.checkCancellation()
      let (owner, origin) = (ObjectIdentifier(self), ChangeOrigin.current)
      return try await shared.thread.run { [environment = shared.environment, thread = shared.thread] in
        try environment.subscribe(of: owner, without: origin, on: thread)
      }
    }
  }

  /// Waits for what is under way and releases the database; the last engine of the process on its place closes it.
  ///
  /// May be called any number of times. Every later call of anything else throws `closed` (rule O3).
  public func close() async throws {
    try await gate.close {
      shared.environment.feed.finish(of: ObjectIdentifier(self))
      if release() { await shared.shutDown() }
    }
  }

  /// Releases the place, the first time it is called.
  ///
  /// - Returns: Whether this was the last engine on the place, which has to be closed.
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
