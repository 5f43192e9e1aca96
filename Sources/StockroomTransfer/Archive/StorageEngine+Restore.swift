import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension StorageEngine {
  /// Writes the entries of an archive, with their timestamps and in their order, as far as the engine can
  /// store timestamps from another engine.
  ///
  /// The archive is read twice: all of it is verified before anything is written. Then entries are written
  /// with `writeEntries(_:)`, about 8 MiB in each batch. In an engine with `atomicBatches`, an archive that
  /// fits into one batch is restored completely or not at all. If a later batch fails, or the task is
  /// cancelled, the entries of the earlier batches are removed again; therefore nobody else may write to the
  /// engine in the meantime. If the process dies, the entries remain: remove them all with `removeAllData()`,
  /// or continue with `merging`, which writes the existing ones again.
  ///
  /// O(N), with the keys and about 8 MiB in memory, or twice the largest value.
  ///
  /// - Parameters:
  ///   - url: The location of the archive.
  ///   - merging: Whether the engine may have entries. Entries whose keys are in the archive are replaced,
  ///     including their timestamps, and the others stay. If a batch fails, the earlier ones stay written:
  ///     restore again to complete them.
  ///   - maximumValueSize: The maximum size of a value: see ``ArchiveReader/init(_:maximumValueSize:)``.
  ///   - progress: Called after each batch.
  /// - Returns: The contents of the archive.
  /// - Throws: `StorageError` with code `unsupported` if the engine has entries and `merging` is false, or a
  ///   copy to it has not been finished (see <doc:MovingData>); as
  ///   ``ArchiveReader/init(_:maximumValueSize:)``, with nothing written; as `writeEntries(_:)`;
  ///   `CancellationError`.
  @discardableResult
  public func restore(
    from url: URL, merging: Bool = false,
    maximumValueSize: Int = ArchiveReader.defaultMaximumValueSize,
    progress: (@Sendable (ArchiveProgress) -> Void)? = nil
  ) async throws -> ArchiveSummary {
    try await refuseUnfitTarget(merging: merging)
    let reader = try await ArchiveReader(url, maximumValueSize: maximumValueSize)
    return try await restore(reader, merging: merging, progress)
  }

  /// Writes the entries of an archive that is read from a descriptor, such as standard input.
  ///
  /// Like ``restore(from:merging:maximumValueSize:progress:)``. A source that is not a file, such as a pipe,
  /// is first copied to a temporary file: see ``ArchiveReader/init(descriptor:maximumValueSize:)``.
  @discardableResult
  public func restore(
    fromDescriptor descriptor: Int32, merging: Bool = false,
    maximumValueSize: Int = ArchiveReader.defaultMaximumValueSize,
    progress: (@Sendable (ArchiveProgress) -> Void)? = nil
  ) async throws -> ArchiveSummary {
    try await refuseUnfitTarget(merging: merging)
    let reader = try await ArchiveReader(descriptor: descriptor, maximumValueSize: maximumValueSize)
    return try await restore(reader, merging: merging, progress)
  }

  /// Writes the entries of an archive that has been opened, and therefore verified, and from which nothing
  /// has been read yet.
  ///
  /// Like ``restore(from:merging:maximumValueSize:progress:)``.
  package func restore(
    _ reader: ArchiveReader, merging: Bool, _ progress: (@Sendable (ArchiveProgress) -> Void)?
  ) async throws -> ArchiveSummary {
    // Verifying may have taken long.
    try await refuseUnfitTarget(merging: merging)
    var done = ArchiveProgress(entryCount: 0, contentSize: 0, totalEntryCount: reader.summary.entryCount)
    // The keys to remove if an error occurs. An archive of another program may repeat them.
    var keys: Set<CacheKey> = []
    do {
      while let entries = try await reader.nextEntries() {
        if !merging { keys.formUnion(entries.map(\.key)) }
        try await writeEntries(entries)
        done.entryCount += entries.count
        done.contentSize += entries.reduce(0) { $0 + $1.data.count + $1.key.value.utf8.count }
        progress?(done)
      }
    } catch {
      try await remove(Array(keys), after: error)
      throw error
    }
    return reader.summary
  }

  private func refuseUnfitTarget(merging: Bool) async throws {
    if merging { return try await refuseMergingIntoUnfinishedCopy() }
    guard try await keyCount() == 0 else {
      throw StorageError(
        .unsupported,
        "The engine is not empty, so the archive is not restored to it. Merge to replace entries with the same keys."
      )
    }
  }

  /// Removes the entries that a restore has written before it failed, whether or not the task has been
  /// cancelled.
  private func remove(_ keys: [CacheKey], after failure: any Error) async throws {
    if keys.isEmpty { return }
    do {
      try await Task { try await self.remove(keys: keys) }.value
    } catch {
      let code = (failure as? StorageError)?.code ?? .io
      throw StorageError(
        code,
        "Restoring the archive failed (\(failure)), and removing what had been written until then failed as well.",
        underlying: error)
    }
  }
}
