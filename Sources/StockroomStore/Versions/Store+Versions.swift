import StockroomCore

/// The progress of a ``Store`` in rewriting items of older versions.
public enum StoreRewritingState: Sendable {
  /// Items are rewritten when they are changed.
  case notStarted
  /// `completed` of `total` entries with an older version have been rewritten, or no longer need to be.
  case rewriting(completed: Int, total: Int)
  /// This many entries have been rewritten, and no item that the store has read is left in an older version.
  case rewritten(Int)
  /// A batch failed, or an item could not be encoded, in which case all others have been rewritten. The items
  /// have not changed, in either version, and can be used.
  case failed(any Error)
}

extension Store where Item: VersionedItem {
  /// Starts to rewrite entries that have been read in older versions, in the background, unless that is in
  /// progress.
  ///
  /// Without this call, an item is stored in the newest version when it is inserted or updated.
  ///
  /// The entries are rewritten in batches of up to 1,000 entries and about 1 MiB, one after another, among
  /// the other changes of the store. Each batch is one step, which reads the entries and skips those that
  /// already have the newest version. No concurrent change is lost (for changes that bypass this store: if
  /// the engine has `EngineCapabilities.transactions`). ``items`` and ``events`` do not change; the entries
  /// keep their positions and their `createdAt`, and get a new `updatedAt`. Others on the same place are
  /// notified of a change. ``rewritingState`` shows the progress.
  ///
  /// Ends when no such entry is left, and when the store is released. If the process ends before that,
  /// another call after the next loading continues with the remaining entries, since each entry contains its
  /// version. If none is left, it costs nothing.
  public func startRewritingOldVersions() {
    if let rewriting, !rewriting.isCancelled { return }
    // A rewriting that has been stopped ends its batch first.
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
        // Entries that others have just changed are being read, and are then recorded if they have an old
        // version.
        await self?.waitForNextBatch()
        while let batch = try await self?.rewriteBatch() {
          completed += batch.examined
          rewritten += batch.operations.count
          failed += batch.unreadable.filter(\.isReadable)
          if !Task.isCancelled { self?.showRewritten(completed) }
          // A store with no other references ends here: it is retained as long as there are changes.
          await self?.waitForNextBatch()
        }
        end = failed.first.map { .failed($0.error) } ?? .rewritten(rewritten)
      } catch is CancellationError {
        end = .notStarted
      } catch {
        end = .failed(error)
      }
      // Only now, so that they are not retried over and over.
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
    // Entries by which others have replaced them, and entries that a step has now refused: to be read again,
    // and reported.
    let unreadable = batch.unreadable.filter { !$0.isReadable }
    if !unreadable.isEmpty { note(.keys(Set(unreadable.map(\.key)))) }
    return batch
  }

  private func showRewritten(_ completed: Int) {
    rewritingState = .rewriting(completed: completed, total: completed + backend.versions.oldCount)
  }

  private func endRewriting(_ number: Int, _ state: StoreRewritingState) {
    // Unless another one has been started in the meantime.
    guard number == rewritingNumber else { return }
    rewriting = nil
    rewritingState = state
  }
}

extension UnreadableEntry {
  /// Whether the entry has been read, and only could not be written in the newest version.
  fileprivate var isReadable: Bool { error.code == .encodingFailed }
}
