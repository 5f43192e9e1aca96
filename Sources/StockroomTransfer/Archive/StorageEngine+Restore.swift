import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension StorageEngine {
  /// Writes the entries of an archive, with their times and in their order, as far as the engine can store times of others.
  ///
  /// The archive is read twice: all of it is verified before anything is written. Then entries are written with `writeEntries(_:)`, about 8 MiB
  /// in each batch. What fits into one batch is there as a whole or not at all, in an engine with `atomicBatches`. If a later batch fails, or
  /// the task is cancelled, the entries of the earlier ones are removed again: so nobody else may write to the engine meanwhile. After the death of the process they are there:
  /// remove them all with `removeAllData()`, or go on with `merging`, which writes what is there already once more.
  ///
  /// O(N), with the keys and about 8 MiB in memory, or twice the largest value.
  ///
  /// - Parameters:
  ///   - url: Where the archive is.
  ///   - merging: Whether the engine may have entries. Those whose keys are in the archive are replaced, times included, and
  ///     the others stay. If a batch fails, those before it stay written: restore again to complete them.
  ///   - maximumValueSize: The longest value that is accepted: see ``ArchiveReader/init(_:maximumValueSize:)``.
  ///   - progress: Called after each batch.
  /// - Returns: What is in the archive.
  /// - Throws: `StorageError` with code `unsupported` if the engine has entries and `merging` is false, or a copy to it has not been finished
  ///   (see <doc:MovingData>); as ``ArchiveReader/init(_:maximumValueSize:)``, with nothing written; as `writeEntries(_:)`;
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
  /// As ``restore(from:merging:maximumValueSize:progress:)``. What is no file, such as a pipe, is copied to a temporary file first: see
  /// ``ArchiveReader/init(descriptor:maximumValueSize:)``.
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

  /// Writes the entries of an archive that has been opened, and so verified, and of which nothing has been read yet.
  ///
  /// As ``restore(from:merging:maximumValueSize:progress:)``.
  package func restore(
    _ reader: ArchiveReader, merging: Bool, _ progress: (@Sendable (ArchiveProgress) -> Void)?
  ) async throws -> ArchiveSummary {
    // Verifying may have taken long.
    try await refuseUnfitTarget(merging: merging)
    var done = ArchiveProgress(entryCount: 0, contentSize: 0, totalEntryCount: reader.summary.entryCount)
    // What is to be removed if something fails.
    var keys: [CacheKey] = []
    do {
      while let entries = try await reader.nextEntries() {
        if !merging { keys += entries.map(\.key) }
        try await writeEntries(entries)
        done.entryCount += entries.count
        done.contentSize += entries.reduce(0) { $0 + $1.data.count + $1.key.value.utf8.count }
        progress?(done)
      }
    } catch {
      try await remove(keys, after: error)
      throw error
    }
    return reader.summary
  }

  private func refuseUnfitTarget(merging: Bool) async throws {
    if merging { return try await refuseMergingIntoUnfinishedCopy() }
    guard try await keyCount() == 0 else {
      throw StorageError(
        .unsupported,
        "The engine is not empty, so the archive is not restored to it. Merging would replace entries.")
    }
  }

  /// Removes what a restore has written until it failed, whether or not the task has been cancelled.
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
