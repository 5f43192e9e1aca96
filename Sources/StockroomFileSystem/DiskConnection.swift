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
/// <directory>/.stockroom/created/      metadata, where the file system has no extended attributes
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
  let durability: Durability

  private let hidden: FileDescriptor
  /// Whether this engine has had the lock once, and so knows that no batch of a crashed machine is pending.
  private let isRecovered = Atomic(false)
  /// Whether this engine has moved the clock beyond what an engine before a crash may have given out.
  let hasMovedClock = Atomic(false)

  /// Opens the directory, which must exist.
  init(directory path: String, durability: Durability) throws {
    self.durability = durability
    let isSynchronized = durability == .full
    let root = try FileDescriptor.openDirectory(atPath: path)
    entries = EntryDirectory(root: root)
    hidden = try root.openOrMakeDirectory(".stockroom", synchronized: isSynchronized)
    state = SharedState(file: try hidden.openOrMakeFile(SharedState.name, synchronized: isSynchronized))
    let isNew = try state.validate() == nil

    journal = Journal(file: try hidden.openOrMakeFile(Journal.name, synchronized: isSynchronized))
    staging = Staging(
      directory: try hidden.openOrMakeDirectory(Staging.name, synchronized: isSynchronized))
    usesAttributes = try MetadataAttribute.isSupported(by: state.file)
    let sidecarDirectory =
      usesAttributes
      ? try hidden.openDirectory("created")
      : try hidden.openOrMakeDirectory("created", synchronized: isSynchronized)
    sidecars = sidecarDirectory.map(EntryDirectory.init(root:))
    try isNew ? create() : recoverIfUnlocked()
  }

  /// Closes every file. Nobody may be using the connection.
  func release() {
    for file in [entries.root, hidden, state.file, journal.file, staging.directory] { file.release() }
    sidecars?.root.release()
  }

  private func create() throws {
    try state.lock()
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
      if durability == .full {
        try journal.file.synchronize()
        try state.file.synchronize()
      }
    }
    try recover()
  }

  private func recoverIfUnlocked() throws {
    // Whoever has the lock now has recovered. If that was another engine we do it again before the first read.
    guard try state.tryLock() else { return }
    defer { state.unlock() }
    try recover()
    try staging.removeAll()
  }

  private func recover() throws {
    try completePending()
    isRecovered.store(true, ordering: .releasing)
  }
}

// MARK: - Taking turns

extension DiskConnection {
  /// Does the work while no other engine writes, here or in another process, and after completing the batch of
  /// one that died. Waits for the lock, so only for the engine's own thread.
  func withLock<Result>(_ work: () throws -> Result) throws -> Result {
    try state.lock()
    defer { state.unlock() }
    try recover()
    return try work()
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

  /// Does the work without the lock.
  ///
  /// - Throws: ``Disturbed`` if somebody was writing what it depends on. Never while the caller has the lock.
  func withoutLock<Result>(_ view: View, _ work: () throws -> Result) throws -> Result {
    guard isRecovered.load(ordering: .acquiring) else { throw Disturbed() }
    let before = try version(view)
    guard before & 1 == 0 else { throw Disturbed() }
    let result = Swift.Result { try work() }
    guard try version(view) == before else { throw Disturbed() }
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

  /// When the machine dies, a file that was not synced can come back with its name and its attributes but without
  /// its contents, or without the end of them if they were so long that they went to the disk in parts. Such a
  /// file must not pass for a value. Other files need not pay for the question.
  private func checkSize(of file: FileDescriptor, _ status: FileStatus) throws {
    guard status.size == 0 || status.size >= 1 << 20, usesAttributes,
      let recorded = try MetadataAttribute.read(from: file)
    else { return }
    // Somebody who edits the file changes its time, too, and is free to do so.
    if status.size != recorded.size, status.modified == recorded.header.updatedAt {
      throw StorageError(
        .corrupted,
        "\(file.path) has \(status.size) bytes and was written with \(recorded.size). Writing or removing the key "
          + "puts it right.")
    }
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

extension FileDescriptor {
  fileprivate func openOrMakeDirectory(_ name: String, synchronized: Bool) throws -> FileDescriptor {
    if try makeDirectory(name), synchronized { try synchronize() }
    guard let directory = try openDirectory(name) else { throw StorageError.directoryRemoved(path) }
    return directory
  }

  fileprivate func openOrMakeFile(_ name: String, synchronized: Bool) throws -> FileDescriptor {
    let file: FileDescriptor
    if let existing = try openFile(name, O_RDWR) {
      file = existing
    } else {
      guard let made = try openFile(name, O_RDWR | O_CREAT) else { throw StorageError.directoryRemoved(path) }
      if synchronized { try synchronize() }
      file = made
    }
    guard try file.status().isRegularFile else {
      throw StorageError(.corrupted, "\(file.path) should be a regular file, and is something else.")
    }
    return file
  }
}
