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

/// The open directory with everything in it that the engine works with.
///
/// ```
/// <directory>/…entry, …more/           the entries; see FileName
/// <directory>/.stockroom/state         lock, versions, clock; see SharedState
/// <directory>/.stockroom/journal       a batch on its way; see Journal
/// <directory>/.stockroom/staging/      files on their way; see Staging
/// <directory>/.stockroom/undo/         what a batch on its way has replaced and removed, under the same names
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
  /// Entries that a batch has replaced or removed, until it is through and cannot fail any more.
  let undo: EntryDirectory
  let undoSidecars: EntryDirectory?
  let durability: Durability
  /// The keys in byte order, for scans.
  let index = KeyIndex()

  private let hidden: FileDescriptor
  private let lockTimeout: Duration
  private let rootAnchor: Anchor
  private let stateAnchor: Anchor
  /// What a batch relies on besides.
  private let batchAnchors: [Anchor]
  /// Whether this engine has had the lock once, and so knows that no batch of a crashed machine is pending.
  private let isRecovered = Atomic(false)
  /// Whether this engine has removed what a process that died may have left behind. Only for the holder of the lock.
  private let isTidy = Atomic(false)
  /// Whether this engine has moved the clock beyond what an engine before a crash may have given out.
  let hasMovedClock = Atomic(false)
  /// The version of batches that was read last, or 1.
  private let lastBatchVersion = Atomic<UInt64>(1)

  /// Opens the directory, which must exist.
  init(
    directory path: String, durability: Durability, permissions: FilePermissions = .owner,
    lockTimeout: Duration = FileLock.defaultTimeout
  ) throws {
    self.durability = durability
    self.lockTimeout = lockTimeout
    func entryDirectory(_ root: FileDescriptor) -> EntryDirectory {
      EntryDirectory(root: root, permissions: permissions)
    }
    let root = try FileDescriptor.openDirectory(atPath: path)
    entries = entryDirectory(root)
    let hidden = try root.openOrMakeDirectory(".stockroom", permissions)
    self.hidden = hidden
    state = SharedState(file: try hidden.openOrMakeFile(SharedState.name, permissions))
    let isNew = try state.validate() == nil

    journal = Journal(file: try hidden.openOrMakeFile(Journal.name, permissions))
    staging = Staging(
      directory: try hidden.openOrMakeDirectory(Staging.name, permissions), permissions: permissions)
    undo = entryDirectory(try hidden.openOrMakeDirectory("undo", permissions))
    usesAttributes = try MetadataAttribute.isSupported(by: state.file)
    let sidecarDirectory =
      usesAttributes
      ? try hidden.openDirectory("created") : try hidden.openOrMakeDirectory("created", permissions)
    sidecars = sidecarDirectory.map(entryDirectory)
    undoSidecars =
      sidecarDirectory == nil
      ? nil : entryDirectory(try hidden.openOrMakeDirectory("undo-created", permissions))

    rootAnchor = try Anchor(root)
    stateAnchor = try Anchor(state.file)
    batchAnchors = try [journal.file, staging.directory, undo.root].map(Anchor.init)
    try isNew ? create() : recoverIfUnlocked()
    // Else what has been opened may be of two places.
    try checkPlace()
  }

  /// Closes every file. Nobody may be using the connection.
  func release() {
    for file in [entries.root, hidden, state.file, journal.file, staging.directory, undo.root] {
      file.release()
    }
    for directory in [sidecars, undoSidecars] { directory?.root.release() }
  }

  private func create() throws {
    try state.lock(timeout: lockTimeout)
    defer { state.unlock() }
    if try state.validate() == nil {
      try journal.prepare()
      // Not zero if somebody removed the file, or put entries into a directory of their own.
      var last: UInt64 = 0
      try entries.forEachKey { bytes in
        guard let key = CacheKey(utf8: bytes) else { return }
        last = max(last, try metadata(of: FileName(key))?.header.sequence ?? 0)
      }
      try state.create(SharedState.Contents(lastSequence: last, reservedSequence: last))
      try journal.file.synchronize()
      try state.file.synchronize()
    }
    try recover()
  }

  private func recoverIfUnlocked() throws {
    guard try state.tryLock() else {
      // Somebody writes, or only keeps the lock. If no batch is pending, reads need not wait for them.
      if try journal.read() == nil, try state.read().isStable {
        isRecovered.store(true, ordering: .releasing)
      }
      return
    }
    defer { state.unlock() }
    try recover()
  }

  private func recover() throws {
    try completePending()
    if !isTidy.load(ordering: .relaxed) {
      try staging.removeAll()
      try emptyUndo()
      isTidy.store(true, ordering: .relaxed)
    }
    isRecovered.store(true, ordering: .releasing)
  }
}

// MARK: - The place

extension DiskConnection {
  /// Throws unless the path still leads to what this engine has open (rule C6).
  func checkPlace() throws {
    try rootAnchor.check()
    try stateAnchor.check()
  }

  /// Throws unless whoever completes a batch, should this process die, finds what it needs.
  func checkPlaceOfBatches() throws {
    for anchor in batchAnchors { try anchor.check() }
  }
}

// MARK: - Taking turns

extension DiskConnection {
  /// Does the work while no other engine writes, here or in another process, and after completing the batch of
  /// one that died. Waits for the lock, so only for the engine's own thread.
  ///
  /// - Throws: `StorageError` with code `locked` if another process keeps the lock for too long, `io` if the path leads
  ///   to another place by now or does so when the work is done.
  func withLock<Result>(_ work: () throws -> Result) throws -> Result {
    try state.lock(timeout: lockTimeout)
    defer { state.unlock() }
    try checkPlace()
    try recover()
    let result = try work()
    try stateAnchor.check()
    return result
  }

  /// What a read has to leave undisturbed to be right.
  enum View: Sendable {
    /// Whole batches.
    case batches
    /// Every single write: for listings, in which a file that is replaced meanwhile may be missing.
    case everything
  }

  /// Somebody was writing what a read depends on. Never leaves the engine.
  struct Disturbed: Error {}

  /// Does the work, which must be quick, without the lock: without asking for the version first if it has not changed
  /// since another read. Never shows half a batch.
  ///
  /// - Throws: ``Disturbed`` if somebody was writing a batch.
  func withoutLock<Result>(quickly work: () throws -> Result) throws -> Result {
    let known = lastBatchVersion.load(ordering: .acquiring)
    if known & 1 == 0, isRecovered.load(ordering: .acquiring) {
      let result = Swift.Result { try work() }
      if try state.batchVersion() == known {
        try stateAnchor.check()
        return try result.get()
      }
    }
    return try withoutLock(.batches) { version in
      let result = try work()
      lastBatchVersion.store(version, ordering: .releasing)
      return result
    }
  }

  /// Does the work without the lock.
  ///
  /// - Parameter work: Gets the version that everything it reads is of.
  /// - Throws: ``Disturbed`` if somebody was writing what it depends on. Never while the caller has the lock.
  func withoutLock<Result>(_ view: View, _ work: (_ version: UInt64) throws -> Result) throws -> Result {
    guard isRecovered.load(ordering: .acquiring) else { throw Disturbed() }
    let before = try version(view)
    guard before & 1 == 0 else { throw Disturbed() }
    let result = Swift.Result { try work(before) }
    guard try version(view) == before else { throw Disturbed() }
    // Nothing is in a directory that has been removed. That must not pass for being absent (rule R4).
    try stateAnchor.check()
    return try result.get()
  }

  private func version(_ view: View) throws -> UInt64 {
    switch view {
    case .batches: return try state.batchVersion()
    case .everything:
      let contents = try state.read()
      return contents.isStable ? contents.version : 1
    }
  }
}

// MARK: - Reading entries

extension DiskConnection {
  /// The value of the entry. Nil if it is absent.
  func value(of name: FileName) throws -> Data? {
    guard let (file, status) = try entries.open(name) else { return nil }
    try checkSize(of: file, status)
    return try file.readData(size: status.size)
  }

  /// The value of the entry with its metadata. Nil if it is absent.
  func valueAndHeader(of name: FileName) throws -> (data: Data, header: EntryHeader)? {
    guard let (file, status) = try entries.open(name) else { return nil }
    try checkSize(of: file, status)
    let header = try metadata(of: file, status, name).header
    return (try file.readData(size: status.size), header)
  }

  /// The metadata of the entry. Nil if it is absent.
  func metadata(of name: FileName) throws -> EntryMetadata? {
    guard let (file, status) = try entries.open(name) else { return nil }
    return try metadata(of: file, status, name)
  }

  /// A file that has become shorter or longer must not pass for a value (rule F2): somebody has cut it off, or it was not
  /// synced when the machine died, and came back without its contents or without the end of them.
  private func checkSize(of file: FileDescriptor, _ status: FileStatus) throws {
    guard usesAttributes, let recorded = try MetadataAttribute.read(from: file), recorded.size != status.size
    else {
      return
    }
    throw StorageError(
      .corrupted,
      "\(file.path) has \(status.size) bytes and was written with \(recorded.size). Writing or removing the key puts it "
        + "right; so does, if somebody has edited the file, removing its attribute \(MetadataAttribute.name)."
    )
  }

  private func metadata(of file: FileDescriptor, _ status: FileStatus, _ name: FileName) throws
    -> EntryMetadata
  {
    if usesAttributes, let recorded = try MetadataAttribute.read(from: file) {
      return recorded.adjusted(to: status)
    }
    if let recorded = try sidecar(of: name) { return recorded.adjusted(to: status) }
    // Somebody copied the file here. It gets the place in the order that its time gives it.
    let sequence = UInt64(max(0, status.modified.nanoseconds))
    return EntryMetadata(
      header: EntryHeader(createdAt: status.modified, sequence: sequence), size: status.size)
  }

  /// The sequence that the entry was given when it was created. Nil if it has none or is absent.
  func recordedSequence(of name: FileName) throws -> UInt64? {
    guard let (file, _) = try entries.open(name) else { return nil }
    let recorded = try (usesAttributes ? MetadataAttribute.read(from: file) : nil) ?? sidecar(of: name)
    return recorded?.header.sequence
  }

  private func sidecar(of name: FileName) throws -> EntryMetadata? {
    guard let (file, _) = try sidecars?.open(name) else { return nil }
    return try withUnsafeTemporaryAllocation(byteCount: EntryMetadata.encodedSize, alignment: 8) { bytes in
      let count = try file.read(into: bytes)
      return EntryMetadata(decoding: UnsafeRawBufferPointer(rebasing: bytes[..<count]))
    }
  }
}

extension EntryMetadata {
  /// With the time that the file says it was written at, which somebody may have edited it after.
  fileprivate func adjusted(to status: FileStatus) -> EntryMetadata {
    var result = self
    // Some file systems keep whole seconds, or every other one. Then ours is the better one.
    let difference = header.updatedAt.nanoseconds &- status.modified.nanoseconds
    let isRounded =
      status.modified.nanoseconds % 1_000_000_000 == 0 && (0..<2_000_000_000).contains(difference)
    if !isRounded { result.header.updatedAt = status.modified }
    result.header.createdAt = min(header.createdAt, result.header.updatedAt)
    return result
  }
}

// MARK: - Opening

// What is made is put on the disk at every durability: a batch is nothing without the journal's name.
extension FileDescriptor {
  fileprivate func openOrMakeDirectory(_ name: String, _ permissions: FilePermissions) throws
    -> FileDescriptor
  {
    if let existing = try openDirectory(name) { return existing }
    if try makeDirectory(name, permissions) { try synchronize() }
    guard let directory = try openDirectory(name) else { throw StorageError.directoryRemoved(path) }
    return directory
  }

  fileprivate func openOrMakeFile(_ name: String, _ permissions: FilePermissions) throws -> FileDescriptor {
    let file: FileDescriptor
    if let existing = try openFile(name, O_RDWR) {
      file = existing
    } else if let made = try makeFile(name, permissions) {
      try synchronize()
      file = made
    } else {
      // Somebody else has made it just now.
      guard let others = try openFile(name, O_RDWR) else { throw StorageError.directoryRemoved(path) }
      file = others
    }
    let status = try file.status()
    guard status.isRegularFile else { throw StorageError.notAFile(file.path) }
    guard status.linkCount <= 1 else {
      throw StorageError(
        .corrupted,
        "\(file.path) is the same file as another one, by a hard link, which writing here would change. Put a copy in "
          + "its place.")
    }
    return file
  }
}
