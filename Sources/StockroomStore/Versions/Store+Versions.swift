import StockroomCore

/// The progress of a ``Store`` in rewriting items of older versions.
public enum StoreRewritingState: Sendable {
  /// Items are rewritten when they are changed.
  case notStarted
  /// `completed` of `total` entries with an older version have been rewritten, or no longer need to be.
  case rewriting(completed: Int, total: Int)
  /// This many entries have been rewritten, and no item that the store has read is left in an older version.
  case rewritten(Int)
  /// A batch failed, or items could not be encoded in the newest version, in which case all others have been rewritten.
  /// ``Store/items`` has not changed and can be used.
  case failed(any Error)
}

extension Store where Item: VersionedItem {
  /// Starts to rewrite the entries that were in an older version when the store read them, in the background. Does nothing
  /// if that is already in progress.
  ///
  /// Without this call, an item gets the newest version only when it is inserted or updated.
  ///
  /// The entries are rewritten in batches of up to 1,000 entries and about 1 MiB, one after another, among the other
  /// changes of the store. Each batch is one step, which reads the entries and skips those that already have the newest
  /// version. No concurrent change is lost (for changes that bypass this store: if the engine has
  /// `EngineCapabilities.transactions`). ``items`` and ``events`` do not change; the entries keep their positions and their
  /// `createdAt`, and get a new `updatedAt`. Other stores and subscribers of the same place are notified of a change.
  /// ``rewritingState`` shows the progress.
  ///
  /// Ends when no entry of an older version is left, or when the store is released. If the process ends before that, call
  /// this again after the next start: it continues with the remaining entries, since each entry contains its version. If
  /// none is left, the call costs nothing.
  public func startRewritingOldVersions() {
    if let rewriting, !rewriting.isCancelled { return }
    // A rewriting that has been stopped first completes its current batch.
    let stopped = rewriting
    let load = itemsState == .current ? nil : startLoading()
    rewritingState = .rewriting(completed: 0, total: backend.versions.oldCount)
    rewritingNumber += 1
    rewriting = Task { [weak self, number = rewritingNumber] in
      await stopped?.value
      var (completed, rewritten) = (0, 0)
      var failed: [UnreadableEntry] = []
      let end: StoreRewritingState
      do {
        try await load?.value
        // The store may be reading entries that others have just changed, and records those that have an old version.
        await self?.waitForNextBatch()
        while let batch = try await self?.rewriteBatch() {
          completed += batch.examined
          rewritten += batch.operations.count
          failed += batch.unreadable.filter(\.isReadable)
          if !Task.isCancelled { self?.showRewritten(completed) }
          // A store that has no other references is released after this: only its pending changes retain it.
          await self?.waitForNextBatch()
        }
        end = failed.first.map { .failed($0.error) } ?? .rewritten(rewritten)
      } catch is CancellationError {
        end = .notStarted
      } catch {
        end = .failed(error)
      }
      // Recorded only at the end, so that this rewriting does not retry them endlessly.
      self?.backend.versions.noteOld(failed.map(\.key))
      self?.endRewriting(number, end)
    }
  }

  /// Ends rewriting after the batch that is being written. Returns immediately;
  /// ``oldVersionsHaveBeenRewritten()`` waits for the end.
  public func stopRewritingOldVersions() { rewriting?.cancel() }

  /// Waits until rewriting has ended, if it was started.
  ///
  /// - Throws: the error of ``rewritingState``: what the engine threw if a batch failed; `StorageError` with
  ///   code `encodingFailed`; `CancellationError` as soon as the caller is cancelled; rewriting continues.
  public func oldVersionsHaveBeenRewritten() async throws {
    try await rewriting?.waitUntilEnded()
    if case .failed(let error) = rewritingState { throw error }
  }

  /// Rewrites some of the entries, as one batch. Returns nil if there are none.
  private func rewriteBatch() async throws -> RewritingBatch? {
    try Task.checkCancellation()
    let keys = backend.versions.takeOld(RewritingBatch.keyLimit)
    if keys.isEmpty { return nil }
    let rewriting = StoreRewriting(keys)
    do {
      try await perform([.rewrite(rewriting)])
    } catch {
      backend.versions.noteOld(keys)
      throw error
    }
    let batch = rewriting.result.withLock { $0 } ?? RewritingBatch([])
    backend.versions.noteOld(keys.dropFirst(batch.examined))
    // Others have replaced these entries with unreadable ones, or a migration step has now thrown. The store reads them again, and
    // reports them.
    let unreadable = batch.unreadable.filter { !$0.isReadable }
    if !unreadable.isEmpty { note(.keys(Set(unreadable.map(\.key)))) }
    return batch
  }

  private func showRewritten(_ completed: Int) {
    rewritingState = .rewriting(completed: completed, total: completed + backend.versions.oldCount)
  }

  private func endRewriting(_ number: Int, _ state: StoreRewritingState) {
    // Ignored if another rewriting has been started in the meantime.
    guard number == rewritingNumber else { return }
    rewriting = nil
    rewritingState = state
  }
}

extension UnreadableEntry {
  /// Whether the entry could be decoded, but not encoded in the newest version.
  fileprivate var isReadable: Bool { error.code == .encodingFailed }
}
