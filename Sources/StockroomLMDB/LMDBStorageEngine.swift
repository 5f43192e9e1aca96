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
/// file system. Damage to what holds it together is recognised when it is opened; damage within keys and values is
/// not.
///
/// ## Several engines
/// Engines on the same place share what they open and may be in one process or in several. One in a process that
/// has been forked must not be used there.
public final class LMDBStorageEngine: StorageEngine {
  let gate: Gate
  let place: LMDBPlace
  let durability: Durability
  private let isReleased = Guarded(false)

  /// Opens the database in a directory, and creates both if they do not exist.
  ///
  /// The first engine of a process on a place looks at every page of the file but those of large values, since LMDB
  /// would end the process over one that is damaged (rule F2). Further ones cost no time that depends on the entries.
  ///
  /// - Parameters:
  ///   - directory: Where `data.mdb` and `lock.mdb` are. The directory is best left to the engine alone.
  ///   - durability: When a write counts as done.
  /// - Throws: `StorageError` with code `corrupted` if `data.mdb` is no LMDB file, is damaged in its header or its pages, or has
  ///   been cut off; `unsupported` if it is another program's; `readOnly`, `permissionDenied`, `diskFull` or `io`
  ///   if the system does not let it be opened (rules O2, F2, F3). Nothing has been touched then.
  public init(directory: FileManager.Directory, durability: Durability = .full) throws {
    place = try LMDBRegistry.place(in: directory)
    gate = Gate(path: directory.path)
    self.durability = durability
  }

  deinit {
    // Nobody is inside: whoever is holds a reference.
    if release() { place.thread.stop() }
  }

  /// Everything but `EngineCapabilities.detectsCorruption`; `durableWrites` only at `Durability.full`.
  public var capabilities: EngineCapabilities {
    let always: EngineCapabilities = [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .multiProcess,
    ]
    return durability == .full ? always.union(.durableWrites) : always
  }

  /// Waits for what is under way and releases the database; the last engine of the process on its place closes it.
  ///
  /// May be called any number of times. Every later call of anything else throws `closed` (rule O3).
  public func close() async throws {
    try await gate.close {
      // Off the cooperative pool: closing may wait for a write of another process.
      let isLast = try await place.thread.run { self.release() }
      if isLast { place.thread.stop() }
    }
  }

  /// Gives the place back, the first time it is called.
  ///
  /// - Returns: Whether nobody is left on the place, and its thread has to be stopped.
  private func release() -> Bool {
    let isFirst = isReleased.withLock { isReleased in
      defer { isReleased = true }
      return !isReleased
    }
    return isFirst && LMDBRegistry.release(place)
  }
}

extension StorageEngine where Self == LMDBStorageEngine {
  /// An LMDB database in a directory. See ``LMDBStorageEngine/init(directory:durability:)``.
  public static func lmdb(
    directory: FileManager.Directory, durability: Durability = .full
  ) throws -> LMDBStorageEngine {
    try LMDBStorageEngine(directory: directory, durability: durability)
  }
}
