#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
public import StockroomCore

/// Stores each entry in its own file, whose contents are exactly the value.
///
/// Choose it if people or other programs read the values, if values are large, or to avoid dependencies. For many small entries
/// a database is faster, since here each entry takes a file.
///
/// ## On disk
///
/// The files are in the directory itself. A file name is the key in a readable encoding that is safe on every file system:
/// `notes/Paris` is in `notes%2f+paris.entry`. A key that is too long for a name is split into directories. Files of other
/// programs are neither listed nor touched, unless they are named like an entry. The hidden directory `.stockroom` contains
/// what engines share: a lock, a journal for batches, files being written.
///
/// The creation time of an entry is in an extended attribute of its file or, if the file system has none, in a file in
/// `.stockroom`. Its update time is the file's modification time. A file that is copied into the directory under the name of an
/// entry is an entry. So is a file that replaces an entry by a rename; but if the engine's own file has become longer or
/// shorter, it counts as corrupted, on file systems with attributes.
///
/// ## Durability
///
/// - `Durability.full`: a write is on disk before it is acknowledged. Nothing acknowledged is lost if the machine crashes or loses
///   power.
/// - `Durability.process`: a value is on disk before the file is renamed into place, so either the old or the new value is there
///   after the machine has crashed or lost power. The engine does not wait until the rename or a removal is on the disk. A batch
///   waits for the disk as at `full`, since it could otherwise be stored in part.
///
/// ## Costs
///
/// Up to eight keys are read on the caller's thread, file by file: in microseconds if the system has them in memory; otherwise the
/// thread waits for the disk. If that is slow, or values are large, do not read on the main actor. Everything else runs on other
/// threads.
///
/// A write or a removal of one entry costs O(1) in N, with one or two syncs, which concurrent calls share. A batch goes through
/// the journal: O(batch) and a fixed number of syncs; O(N) if it removes everything.
///
/// ## Other programs
///
/// Any number of engines may be open on one directory, in one or several processes on one machine. If the directory is moved,
/// removed or replaced while an engine has it open, every call throws `StorageError.Code.io` until it is back. If the system
/// refuses a step in the middle of a batch, such as replacing a file that is immutable, the batch is undone.
///
/// On Apple's systems an app and its extensions can share a directory of their app group. The engine locks a file in it only
/// while it writes. The system terminates an app that is suspended at that moment (`0xdead10cc`), so an app that writes while it
/// moves to the background asks for time to do so (`beginBackgroundTask`). No write is left half done if it is terminated. In a
/// sandbox, access to a directory that the user has chosen must last as long as the engine is open.
public final class DiskStorageEngine: BatchWritingEngine {
  /// The open place, or the error of opening it.
  private let opened: Result<DiskConnection, any Error>
  private let durability: Durability
  private let access: StorageAccess
  private let committer: GroupCommitter<DiskRequest>
  let thread = DedicatedThread()
  let gate: Gate
  /// Reads that conflicted with writers too often take the lock, one at a time.
  let lockedReads = LongReadLimiter(limit: 1)

  /// Opens the directory, and creates it and its parent directories if they do not exist.
  ///
  /// Costs the same for any number of entries, unless the last process that wrote died while writing. Blocks the calling thread
  /// while it waits for the disk.
  ///
  /// - Parameters:
  ///   - directory: The directory of the entries.
  ///   - durability: When a write is acknowledged.
  ///   - permissions: Who may open the files and directories that the engine creates.
  ///   - lockTimeout: How long to wait for another process before throwing `locked`.
  ///   - access: Whether the engine may write. A read-only engine creates nothing, and also works on read-only media. It throws
  ///     `readOnly` if a process that died has left an unfinished batch, may throw `locked` immediately while another engine
  ///     creates the place, and has no change feed.
  /// - Throws: `StorageError` with code `unsupported` if a newer version has written the directory, `corrupted` if the contents of
  ///   `.stockroom` are corrupted, `permissionDenied`, `readOnly`, `locked`, `diskFull` or `io` (rules O1, O2).
  public convenience init(
    directory: FileManager.Directory, durability: Durability = .full, permissions: FilePermissions = .owner,
    lockTimeout: Duration = .seconds(60), access: StorageAccess = .readWrite
  ) throws {
    let connection = try Self.open(directory, durability, permissions, lockTimeout, access)
    self.init(
      opened: .success(connection), path: directory.path, durability: durability, access: access)
  }

  private init(
    opened: Result<DiskConnection, any Error>, path: String, durability: Durability,
    access: StorageAccess = .readWrite
  ) {
    self.opened = opened
    self.durability = durability
    self.access = access
    gate = Gate(path: path)
    committer = GroupCommitter(on: thread) { try opened.get().commit($0) }
  }

  deinit {
    // The last reference may be dropped on a thread of the cooperative pool, and ending a feed that is being watched may wait for
    // other processes (rule C5). Otherwise nothing waits, since no call is in progress.
    if case .success(let connection) = opened, connection.feed.isWatching {
      connection.feed.hub.finish()
      do {
        try thread.enqueue { [opened] in Self.finish(opened) }
        thread.stopWithoutWaiting()
        return
      } catch {
        // No thread can be created, so this one waits, since the files must be closed.
      }
    }
    thread.stop()
    Self.finish(opened)
  }

  /// The engine on the directory `Files` in this program's data directory.
  ///
  /// The directory is `<program>/Stockroom/Files` in the default storage directory, where `<program>` is the bundle identifier, or
  /// the name of the executable if there is none. The program has one such engine.
  ///
  /// If the directory cannot be opened, each method of the engine throws the reason until the process ends.
  public static let `default` = DiskStorageEngine.default(appendingPath: "Files")

  /// Opens a directory below `<program>/Stockroom` in the default storage directory.
  ///
  /// Blocks the calling thread while it waits for the disk. If the directory cannot be opened, each method of the engine throws the
  /// reason, so a `static let` can hold the engine; create another engine to try again.
  public static func `default`(appendingPath path: String) -> DiskStorageEngine {
    deferringErrors(directory: .defaultStorageDirectory.ofProgram.appending(path))
  }

  /// An engine each of whose methods throws the error of opening it.
  package static func deferringErrors(
    directory: FileManager.Directory, durability: Durability = .full
  ) -> DiskStorageEngine {
    DiskStorageEngine(
      opened: Result { try open(directory, durability, .owner, FileLock.defaultTimeout, .readWrite) },
      path: directory.path,
      durability: durability)
  }

  /// All capabilities except `snapshotReads` and `detectsCorruption`; `durableWrites` only at `Durability.full`, and `changeFeed`
  /// only for an engine that may write.
  public var capabilities: EngineCapabilities {
    var always: EngineCapabilities = [
      .persistent, .atomicBatches, .orderedScans, .multiProcess, .transactions, .preservesTimestamps,
    ]
    if access == .readWrite { always.insert(.changeFeed) }
    return durability == .full ? always.union(.durableWrites) : always
  }

  /// Commits the request together with those of concurrent calls, with which it shares the syncs.
  package func commit(_ request: WriteRequest) async throws {
    try await gate.whileOpen {
      if request.isEmpty { return }
      try await committer.submit(DiskRequest(request))
    }
  }

  package var changeHub: ChangeHub {
    get throws { try connection.feed.hub }
  }

  /// Changes by engines in this and other processes are reported with their keys, up to a thousand for each commit. Changes that
  /// other programs make to the files of entries are reported on Linux only, and not for long keys, whose files are in
  /// their own directories.
  public func changes() async throws -> StorageChanges {
    try await gate.whileOpen {
      guard access == .readWrite else {
        throw StorageError(.unsupported, "A read-only engine has no change feed.")
      }
      try Task.checkCancellation()
      let (connection, owner, origin) = (try connection, ObjectIdentifier(self), ChangeOrigin.current)
      return try await thread.run { try connection.subscribe(of: owner, without: origin) }
    }
  }

  /// Waits for calls in progress, then closes all files (rule O3).
  public func close() async throws {
    try await gate.close {
      if case .success(let connection) = opened { connection.feed.hub.finish() }
      // On the engine's thread, since an earlier job may be waiting for a disk, and the watcher of the place for a lock.
      try await thread.run { [opened] in Self.finish(opened) }
      thread.stop()
    }
  }

  /// The open place. Throws the error of opening it.
  var connection: DiskConnection {
    get throws { try opened.get() }
  }

  private static func open(
    _ directory: FileManager.Directory, _ durability: Durability, _ permissions: FilePermissions,
    _ lockTimeout: Duration, _ access: StorageAccess
  ) throws -> DiskConnection {
    try access == .readWrite ? directory.create(permissions) : directory.validate()
    return try DiskConnection(
      directory: directory.path, durability: durability, permissions: permissions, lockTimeout: lockTimeout,
      access: access)
  }

  /// Ends the feed and closes all files. May be called twice.
  private static func finish(_ opened: Result<DiskConnection, any Error>) {
    guard case .success(let connection) = opened else { return }
    connection.feed.finish()
    connection.release()
  }
}

extension DiskStorageEngine: CustomStringConvertible {
  /// The type of the engine, and the directory.
  public var description: String { "DiskStorageEngine on \(gate.path)" }
}

extension StorageEngine where Self == DiskStorageEngine {
  /// An engine that keeps each entry in a file in the directory. See ``DiskStorageEngine``. Throws as its initializer does.
  public static func disk(
    directory: FileManager.Directory, durability: Durability = .full, permissions: FilePermissions = .owner,
    lockTimeout: Duration = .seconds(60), access: StorageAccess = .readWrite
  ) throws -> DiskStorageEngine {
    try DiskStorageEngine(
      directory: directory, durability: durability, permissions: permissions, lockTimeout: lockTimeout,
      access: access)
  }
}
