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
/// file in `.stockroom`. When it was updated is the file's time of modification. A file that somebody copied into
/// the directory under a name of ours is an entry.
///
/// ## Durability
///
/// - `Durability.full`: a write is on disk before it is acknowledged; the death of the machine loses nothing.
/// - `Durability.process`: when the machine dies, writes of the last seconds may be lost. A batch still waits
///   for the disk once, so that it is never half there. A single entry that was being written may be found
///   damaged; reading it then throws `StorageError.Code.corrupted`, where the file system has attributes.
///
/// Any number of engines may be open on one directory, in one process or in several on one machine.
public final class DiskStorageEngine: StorageEngine {
  let connection: DiskConnection
  let committer: GroupCommitter<WriteRequest>
  let thread = OwnThread()
  let gate: Gate

  /// Opens the directory, which is made if it is missing, with those on the way to it.
  ///
  /// Costs the same however many entries there are, unless the last process that wrote has died in the middle.
  ///
  /// - Throws: `StorageError` with code `unsupported` if a newer version has written the directory, `corrupted`
  ///   if what is in `.stockroom` is damaged, `permissionDenied`, `readOnly`, `diskFull` or `io` (rules O1, O2).
  public init(directory: FileManager.Directory, durability: Durability = .full) throws {
    try directory.create()
    let connection = try DiskConnection(directory: directory.path, durability: durability)
    self.connection = connection
    gate = Gate(path: connection.entries.path)
    committer = GroupCommitter(on: thread) { try connection.commit($0) }
  }

  deinit {
    thread.stop()
    connection.release()
  }

  /// Everything but reads of many entries as of one moment, and checksums; `EngineCapabilities.durableWrites` only at
  /// `Durability.full`.
  public var capabilities: EngineCapabilities {
    let always: EngineCapabilities = [.persistent, .atomicBatches, .orderedScans, .multiProcess]
    return connection.durability == .full ? always.union(.durableWrites) : always
  }

  /// Waits for what is under way, then closes every file (rule O3).
  public func close() async throws {
    try await gate.close {
      // On its own thread, since a job before this one may be waiting for a disk.
      try await thread.run { [connection] in connection.release() }
      thread.stop()
    }
  }
}

extension StorageEngine where Self == DiskStorageEngine {
  /// An engine that keeps each entry in a file in the directory. See ``DiskStorageEngine``.
  public static func disk(
    directory: FileManager.Directory, durability: Durability = .full
  ) throws -> DiskStorageEngine {
    try DiskStorageEngine(directory: directory, durability: durability)
  }
}
