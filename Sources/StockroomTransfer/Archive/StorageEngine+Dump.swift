import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension StorageEngine {
  /// Writes every entry to an archive: one compressed file with checksums, which
  /// ``restore(from:merging:maximumValueSize:progress:)`` of any engine reads.
  ///
  /// The entries are a snapshot, taken during the call, with their times and in the order in which their keys
  /// were first written. Others may read and write in the meantime. The costs depend on the engine:
  ///
  /// | engine | memory | concurrent writes |
  /// |---|---|---|
  /// | SQLite, LMDB, LevelDB | the keys, and one entry | continue; SQLite delays some: see <doc:BackingUp> |
  /// | files | the keys, and one entry; all values in a temporary file | wait while each entry is checked |
  /// | others with `snapshotReads`; SQLite, LMDB and LevelDB behind a layer | all entries | continue |
  /// | others with `transactions`; times may be later: see <doc:BackingUp> | all entries | wait while all values are compared |
  /// | all others | throws `unsupported`, unless `requiringSnapshot` is false | |
  ///
  /// The file is written under a name that begins with a dot and contains `.partial-`, and is renamed once
  /// all of it is on the disk. Only its owner can read or write it (0600). O(N).
  ///
  /// - Parameters:
  ///   - url: The location of the archive. The directory must exist.
  ///   - replacing: Whether an existing file is replaced.
  ///   - requiringSnapshot: Whether the call throws if the engine cannot read a snapshot. If it is false, the entries
  ///     may be from different times, and ``ArchiveSummary/isSnapshot`` is then false.
  ///   - progress: Called after each block of up to a megabyte, on a thread other than those of Swift's cooperative
  ///     pool. The dump continues when it returns.
  /// - Returns: The contents of the archive.
  /// - Throws: `StorageError` with code `unsupported` if there is a file at the URL that is not to be
  ///   replaced, the engine cannot provide a snapshot, or a copy to it has not been finished (see
  ///   <doc:MovingData>); `diskFull`, `permissionDenied`, `readOnly` or `io` if the file cannot be written;
  ///   otherwise as `readAllEntries()`; `CancellationError`. No file remains then, with one exception: with
  ///   `replacing`, the new archive may be in place if only syncing the directory failed.
  @discardableResult
  public func dump(
    to url: URL, replacing: Bool = false, requiringSnapshot: Bool = true,
    progress: (@Sendable (ArchiveProgress) -> Void)? = nil
  ) async throws -> ArchiveSummary {
    try await dump(requiringSnapshot, progress) { _ in try ArchiveFile(url, replacing: replacing) }
  }

  /// Writes every entry to a descriptor, such as standard output, as an archive.
  ///
  /// Like ``dump(to:replacing:requiringSnapshot:progress:)``, except that the bytes that were written before a failure
  /// remain. They are not an archive, since they have no trailer. The caller must close the descriptor, which is not
  /// synced.
  ///
  /// In SQLite, the log cannot start over as long as the dump reads. The write that makes the log 16 MiB long waits for
  /// up to a quarter of a second for each 16 MiB in the log, and so does each later write after which the log is twice
  /// as long as at the last wait. So a reader that stops does not block the writers, but lets the log grow. In LevelDB
  /// and LMDB, no call waits for the reader of a pipe, unless a write fails so that the database must be reopened: then
  /// all calls wait until the dump has ended.
  @discardableResult
  public func dump(
    toDescriptor descriptor: Int32, requiringSnapshot: Bool = true,
    progress: (@Sendable (ArchiveProgress) -> Void)? = nil
  ) async throws -> ArchiveSummary {
    try await dump(requiringSnapshot, progress) { try ArchiveStream(descriptor: descriptor, $0) }
  }

  private func dump(
    _ requiringSnapshot: Bool, _ progress: (@Sendable (ArchiveProgress) -> Void)?,
    _ open: @escaping @Sendable (CancellationFlag) throws -> some ArchiveOutput
  ) async throws -> ArchiveSummary {
    let source = try EntrySource(self, requiringSnapshot: requiringSnapshot)
    try await refuseUnfinishedCopy()
    return try await CancellationFlag.following { flag in
      try await dump(source, progress) { try open(flag) }
    }
  }

  private func dump(
    _ source: EntrySource, _ progress: (@Sendable (ArchiveProgress) -> Void)?,
    _ open: @escaping @Sendable () throws -> some ArchiveOutput
  ) async throws -> ArchiveSummary {
    let isSnapshot = source.isSnapshot
    let thread = DedicatedThread()
    defer { thread.stop() }
    let output = try await thread.run { try open() }
    do {
      let writer = try await thread.run {
        SharedWriter(
          try ArchiveWriter(isSnapshot: isSnapshot, progress: progress, write: { try output.append($0) }))
      }
      try await source.forEachEntry { entry in
        // A copy to the engine may have begun in the meantime.
        if UnfinishedCopy.isMarker(entry.key) {
          throw UnfinishedCopy.error(entry.key, in: "The engine")
        }
        try writer.withLock { try $0.append(entry) }
      }
      try Task.checkCancellation()
      return try await thread.run {
        let summary = try writer.withLock { try $0.finish() }
        try output.finish()
        return summary
      }
    } catch {
      // The error that matters is the first one.
      try? await thread.run { output.discard() }
      throw error
    }
  }
}

/// A writer that is passed between threads.
private final class SharedWriter: Sendable {
  private let writer: MutexProtected<ArchiveWriter>

  init(_ writer: ArchiveWriter) { self.writer = MutexProtected(writer) }

  func withLock<Result: Sendable>(_ body: (inout ArchiveWriter) throws -> Result) throws -> Result {
    try writer.withLock { try body(&$0) }
  }
}
