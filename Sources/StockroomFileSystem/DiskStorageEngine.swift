#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
public import StockroomCore

/// Keeps each entry in a file of its own, whose contents are exactly the value.
///
/// Choose it when people or other programs are to read the values, when values are large, or to have no
/// dependency. A database is faster for many small entries: here each costs a file.
///
/// ## On disk
///
/// The files are in the directory itself. A name is the key in a readable encoding that no file system folds or
/// refuses: `notes/Paris` is in `notes%2f+paris.entry`. What does not fit a name goes on in a directory. Files
/// that others put there are neither listed nor touched, unless they are named as an entry of ours would be.
/// The hidden directory `.stockroom` holds what engines share: a lock, a journal for batches, files being written.
///
/// When an entry was created is in an extended attribute of its file or, where the file system has none, in a
/// file in `.stockroom`. When it was updated is the file's time of modification. A file that was copied into
/// the directory under a name of ours is an entry. So is one that was renamed over ours; but one of ours that has become
/// longer or shorter counts as corrupted, where the file system has attributes.
///
/// ## Durability
///
/// - `Durability.full`: a write is on disk before it is acknowledged; the death of the machine loses nothing.
/// - `Durability.process`: a value is on disk before it gets its name, so that the old one or the new one is there when
///   the machine dies; the name is not waited for, and nor is a removal. A batch waits for the disk as at `full`, since it
///   could be half there otherwise.
///
/// ## Costs
///
/// Up to eight keys are read on the thread of the caller, file by file: in microseconds if the system has them in memory, otherwise it
/// waits for the disk. Where that is slow, or values are large, do not call it from the main actor. Everything else runs on other threads.
///
/// A write or a removal of one entry costs O(1) in N, with one or two syncs, which concurrent calls share. A batch goes through
/// the journal: O(batch) and a fixed number of syncs; O(N) if it removes all.
///
/// ## Other programs
///
/// Any number of engines may be open on one directory, in one process or in several on one machine. If the directory is
/// moved, removed or replaced while an engine has it open, every call throws `StorageError.Code.io` until it is back. What
/// the system refuses in the middle of a batch, such as to replace a file that has been made immutable, leaves the batch
/// undone.
///
/// On Apple's systems an app and its extensions can share a directory of their app group. The engine locks a file in it
/// only while it writes; an app that is suspended just then is ended by the system (0xdead10cc), so an app that writes
/// on its way into the background asks for time to do so (`beginBackgroundTask`). Nothing is half written if it is ended.
/// In a sandbox, access to a directory that the user has chosen must last for as long as the engine is open.
public final class DiskStorageEngine: BatchWritingEngine {
  /// What is open, or why it could not be opened.
  private let opened: Result<DiskConnection, any Error>
  private let durability: Durability
  private let access: StorageAccess
  private let committer: GroupCommitter<DiskRequest>
  let thread = DedicatedThread()
  let gate: Gate
  /// Lets reads that writers have disturbed too often take the lock one after the other.
  let lockedReads = LongReadLimiter(limit: 1)

  /// Opens the directory, which is made if it is missing, with those on the way to it.
  ///
  /// Costs the same however many entries there are, unless the last process that wrote has died in the middle. Waits for
  /// the disk on the calling thread.
  ///
  /// - Parameters:
  ///   - directory: Where the entries are.
  ///   - durability: When a write is acknowledged.
  ///   - permissions: Who may open the files and directories that the engine makes.
  ///   - lockTimeout: How long to wait for another process before throwing `locked`.
  ///   - access: Whether the engine may write. One that only reads makes nothing, and works on read-only media too; it throws `readOnly` if a
  ///     process that died has left a batch, may throw `locked` at once while another engine makes the place, and has no change feed.
  /// - Throws: `StorageError` with code `unsupported` if a newer version has written the directory, `corrupted`
  ///   if what is in `.stockroom` is corrupted, `permissionDenied`, `readOnly`, `locked`, `diskFull` or `io` (rules O1, O2).
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
    if case .success(let connection) = opened { connection.feed.finish() }
    thread.stop()
    Self.release(opened)
  }

  /// The engine on the directory `Files` in this program's directory for data.
  ///
  /// That is `<program>/Stockroom/Files` in the default storage directory, with the bundle identifier for the program, or
  /// the name of the executable where there is none. It is one engine for the whole program.
  ///
  /// If it cannot be opened, each of its methods throws the reason, as long as the process lives.
  public static let `default` = DiskStorageEngine.default(appendingPath: "Files")

  /// An engine on a directory below `<program>/Stockroom` in the default storage directory.
  ///
  /// Waits for the disk on the calling thread. If it cannot be opened, each of its methods throws the reason, so that a
  /// `static let` can hold it; make another engine to try again.
  public static func `default`(appendingPath path: String) -> DiskStorageEngine {
    deferringErrors(directory: .defaultStorageDirectory.ofProgram.appending(path))
  }

  /// An engine that throws from each of its methods why it could not be opened.
  package static func deferringErrors(
    directory: FileManager.Directory, durability: Durability = .full
  ) -> DiskStorageEngine {
    DiskStorageEngine(
      opened: Result { try open(directory, durability, .owner, FileLock.defaultTimeout, .readWrite) },
      path: directory.path,
      durability: durability)
  }

  /// Everything but snapshots in reads of many entries, and checksums; `EngineCapabilities.durableWrites` only at
  /// `Durability.full`, and `changeFeed` only for an engine that may write.
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

  /// Engines in this process and in others name the keys that they change, up to a thousand in one commit. So is what other programs
  /// do to the files of entries, on Linux: on Apple's systems it is not noticed, and nor is anywhere what they do to files of keys that
  /// are so long as to be in a directory of their own.
  public func changes() async throws -> StorageChanges {
    try await gate.whileOpen {
      guard access == .readWrite else {
        throw StorageError(.unsupported, "An engine that was opened to be read only has no change feed.")
      }
      try Task.checkCancellation()
      let (connection, owner, origin) = (try connection, ObjectIdentifier(self), ChangeOrigin.current)
      return try await thread.run { try connection.subscribe(of: owner, without: origin) }
    }
  }

  /// Waits for what is under way, then closes every file (rule O3).
  public func close() async throws {
    try await gate.close {
      if case .success(let connection) = opened { connection.feed.finish() }
      // On its own thread, since a job before this one may be waiting for a disk.
      try await thread.run { [opened] in Self.release(opened) }
      thread.stop()
    }
  }

  /// What is open. Throws why nothing is.
  var connection: DiskConnection {
    get throws { try opened.get() }
  }

  private static func open(
    _ directory: FileManager.Directory, _ durability: Durability, _ permissions: FilePermissions,
    _ lockTimeout: Duration, _ access: StorageAccess
  ) throws -> DiskConnection {
    if access == .readWrite { try directory.create(permissions) }
    return try DiskConnection(
      directory: directory.path, durability: durability, permissions: permissions, lockTimeout: lockTimeout,
      access: access)
  }

  private static func release(_ opened: Result<DiskConnection, any Error>) {
    if case .success(let connection) = opened { connection.release() }
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
