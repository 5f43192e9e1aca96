#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif
import StockroomCore
import Synchronization

/// The open directory with all files that the engine uses.
///
/// ```
/// <directory>/…entry, …more/           the entries; see FileName
/// <directory>/.stockroom/state         lock, versions, clock; see SharedState
/// <directory>/.stockroom/journal       the batch that is being applied; see Journal
/// <directory>/.stockroom/staging/      files that are being written; see Staging
/// <directory>/.stockroom/changes       log of changes, while there are subscribers; see ChangeLog
/// <directory>/.stockroom/undo/         what the current batch has replaced and removed, under the same names
/// <directory>/.stockroom/created/      metadata, where the file system has no extended attributes
/// <directory>/.stockroom/undo-created/ the same, of what is in undo/
/// ```
final class DiskConnection: Sendable {
  let entries: EntryDirectory
  /// Metadata of entries, in files of the same names. Nil if there are none and none are needed.
  let sidecars: EntryDirectory?
  /// Whether metadata is written as an extended attribute rather than to ``sidecars``.
  let usesAttributes: Bool
  let state: SharedState
  let journal: Journal
  let staging: Staging
  /// Entries that a batch has replaced or removed, until it is complete and cannot fail any more.
  let undo: EntryDirectory
  let undoSidecars: EntryDirectory?
  let durability: Durability
  let access: StorageAccess
  /// The keys in byte order, for scans.
  let index = KeyIndex()
  let feed: ChangeFeed

  private let hidden: FileDescriptor
  let lockTimeout: Duration
  private let openedRoot: OpenedPath
  private let openedState: OpenedPath
  /// The other paths that a batch relies on.
  private let openedBatchPaths: [OpenedPath]
  /// Whether it is known that no batch of a process that died is pending, so that this engine may read without the lock.
  let isRecovered = Atomic(false)
  /// Whether this engine has removed files that a process that died may have left. Accessed only with the lock.
  private let hasRemovedLeftovers = Atomic(false)
  /// Whether this engine has advanced the sequence numbers beyond all those that an engine may have used before a crash.
  let hasReservedNumbers = Atomic(false)
  /// The limit of numbers that this engine has last synced, or 0.
  let syncedReserve = Atomic<UInt64>(0)
  /// The version of the last batch whose end in the journal is known to be on the disk, or 1. Each batch has
  /// its own version, regardless of its engine.
  let syncedBatchVersion = Atomic<UInt64>(1)
  /// The error of a failed sync of changes that are already visible. It is unknown what is on the disk, so
  /// this engine throws from every later call. An engine that is opened later uses the state on the disk.
  let failure = MutexProtected<(any Error)?>(nil)
  /// The version of batches that was read last, or 1.
  let lastBatchVersion = Atomic<UInt64>(1)
  /// Until when this engine may take the lock without waiting in the queue, if the lock is free.
  let relockDeadline = MutexProtected(ContinuousClock.now)

  /// Opens the directory, which must exist.
  init(
    directory path: String, durability: Durability, permissions: FilePermissions = .owner,
    lockTimeout: Duration = FileLock.defaultTimeout, access: StorageAccess = .readWrite
  ) throws {
    self.durability = durability
    self.access = access
    self.lockTimeout = lockTimeout
    func entryDirectory(_ root: FileDescriptor) -> EntryDirectory {
      EntryDirectory(root: root, permissions: permissions)
    }
    let root = try FileDescriptor.openDirectory(atPath: path)
    entries = entryDirectory(root)
    let hidden = try root.openOrMakeDirectory(".stockroom", permissions, access)
    func directory(_ name: String) throws -> FileDescriptor {
      if access == .readOnly, try hidden.status(of: name) == nil { throw Self.incomplete(path) }
      return try hidden.openOrMakeDirectory(name, permissions, access)
    }
    func file(_ name: String) throws -> FileDescriptor {
      if access == .readOnly, try hidden.status(of: name) == nil { throw Self.incomplete(path) }
      return try hidden.openOrMakeFile(name, permissions, access)
    }
    self.hidden = hidden
    feed = ChangeFeed(logAtPath: hidden.path + "/changes", like: hidden.path + "/" + SharedState.name)
    state = SharedState(file: try file(SharedState.name))
    let isNew = try state.validate() == nil

    journal = Journal(file: try file(Journal.name))
    staging = Staging(directory: try directory(Staging.name), permissions: permissions)
    undo = entryDirectory(try directory("undo"))
    // Determining that requires writing an attribute.
    usesAttributes = try access == .readOnly || MetadataAttribute.isSupported(by: state.file)
    let sidecarDirectory = usesAttributes ? try hidden.openDirectory("created") : try directory("created")
    sidecars = sidecarDirectory.map(entryDirectory)
    undoSidecars =
      sidecarDirectory == nil || access == .readOnly ? nil : entryDirectory(try directory("undo-created"))

    openedRoot = try OpenedPath(root)
    openedState = try OpenedPath(state.file)
    openedBatchPaths = try [journal.file, staging.directory, undo.root].map(OpenedPath.init)
    if isNew {
      try access == .readWrite ? create() : waitUntilCreated()
    } else {
      try recoverIfUnlocked()
    }
    // Otherwise the opened files could belong to two places.
    try checkPlace()
  }

  /// Closes every file. The connection must not be in use.
  func release() {
    for file in [entries.root, hidden, state.file, journal.file, staging.directory, undo.root] {
      file.release()
    }
    for directory in [sidecars, undoSidecars] { directory?.root.release() }
  }

  private func create() throws {
    try state.lock(queue: journal.file, timeout: lockTimeout)
    defer { state.unlock() }
    if try state.validate() == nil {
      // Not zero if another program removed the file, or put entries into a new directory.
      var last: UInt64 = 0
      var isEmpty = true
      try entries.forEachKey { bytes in
        isEmpty = false
        guard let key = CacheKey(utf8: bytes) else { return }
        let sequence = try metadata(of: FileName(key))?.header.sequence ?? 0
        // No engine has counted that far: another program has written the attribute.
        if sequence <= UInt64(Int64.max / 2) { last = max(last, sequence) }
      }
      // An incomplete file is valid only in a new place, which has no entries and no transaction.
      guard try state.file.status().size % SharedState.size == 0 || isEmpty && journal.read() == nil else {
        throw StorageError.corruptedState(state.file.path, "it has been truncated")
      }
      try journal.prepare()
      // Another engine may have created some of the files and died before it synced them.
      for directory in [entries.root, hidden] { try directory.synchronizeNames() }
      try state.create(SharedState.Contents(lastSequence: last, reservedSequence: last))
      try journal.file.synchronize()
      try state.file.synchronize()
    }
    try recover()
  }

  /// Waits for the engine that is creating the place, which holds the lock until it is done.
  private func waitUntilCreated() throws {
    try state.lock(queue: journal.file, timeout: lockTimeout)
    defer { state.unlock() }
    guard try state.validate() != nil else { throw Self.incomplete(entries.root.path) }
    try recover()
  }

  private static func incomplete(_ path: String) -> StorageError {
    StorageError(
      .locked,
      "The place in \(path) is not complete: another engine is making it, or its process has died meanwhile, after which an engine "
        + "has to be opened that may write.")
  }

  private func recoverIfUnlocked() throws {
    guard try state.tryLock() else {
      // Another process writes, or only holds the lock. If no batch is pending, reads need not wait for it.
      if try journal.read() == nil, try state.read().isStable {
        isRecovered.store(true, ordering: .releasing)
      }
      return
    }
    defer { state.unlock() }
    try recover()
  }

  func recover() throws {
    if access == .readOnly { return try expectRecovered() }
    try completePending()
    if !hasRemovedLeftovers.load(ordering: .relaxed) {
      // The files may belong to a batch that failed or was undone, and whose end was not synced. If it is in the journal again
      // after a crash of the machine, a missing file counts as moved: the rest of the batch would then be done without it, or an
      // older entry would be taken for it and removed.
      try staging.removeAll(after: synchronizeEndOfBatches)
      try emptyUndo()
      for directory in [undo, undoSidecars] { directory?.removeEmptyDirectories() }
      hasRemovedLeftovers.store(true, ordering: .relaxed)
    }
    isRecovered.store(true, ordering: .releasing)
  }
}

extension DiskConnection {
  /// Throws if a process that died has left something to complete, which requires writing. Needs the lock.
  private func expectRecovered() throws {
    guard try state.validate()?.isStable == true, try journal.read() == nil else {
      throw StorageError(
        .readOnly,
        "A process that died has left a batch in \(entries.root.path). An engine that may write has to complete or undo it."
      )
    }
    isRecovered.store(true, ordering: .releasing)
  }
}

// MARK: - The place

extension DiskConnection {
  /// Throws unless the path still leads to the files that this engine has open (rule C6). This takes two system calls, since the
  /// directory and the state file may each have been moved or replaced without the other.
  func checkPlace() throws {
    try openedRoot.check()
    try openedState.check()
  }

  /// Throws unless the paths still lead to the files from which another process would complete a batch if this one died.
  func checkPlaceOfBatches() throws {
    for path in openedBatchPaths { try path.check() }
  }
}
