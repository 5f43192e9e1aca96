public import StockroomCore

/// A copy of all entries of one engine to another, which follows the changes of the source until the program
/// switches over.
///
/// ```swift
/// let copy = try await EngineCopy(from: old, to: new)   // others go on to read and write `old`
/// // … stop writing
/// try await copy.finish()                                // from now on `new` is the one
/// ```
///
/// Keys, values, timestamps and order are copied: see <doc:MovingData>. An engine with the capability `changeFeed` may
/// be written to until ``finish()`` is called: the copy follows written, removed and rewritten entries and
/// `removeAllData()`. Any other engine must not change until the copy is finished.
///
/// A copy that is killed, cancelled or released leaves a target that only a copy with the option ``CopyTarget/resume``
/// accepts, which continues it. The target has an additional entry until the copy is finished. With
/// ``CopyTarget/merge``, only a target without `preservesTimestamps` has such an entry, and another merge completes the
/// copy.
///
/// Memory: the keys, timestamps and digests of all entries of source and target, about 150 bytes each in addition to
/// the bytes of the key, and ``CopyOptions/batchSize`` of values; up to 256 values if small ones are followed by very
/// large ones. Every value of the source is read three times and every value of the target once; ``finish()`` makes one
/// of these reads of each. The values of an engine of your own are read once more for each comparison, to determine the
/// order: in portions, or all together if the order is not that of the creation times. If an engine lists its keys by
/// reading all values, as layers with lifetimes or hidden names do, all values are in memory during that time.
public final class EngineCopy: Sendable {
  private let session: CopySession
  /// The task that follows the source.
  private let follower: Task<Void, Never>?

  /// Copies all existing entries. When this returns, the source is being followed.
  ///
  /// - Parameters:
  ///   - source: The engine to copy. It is not changed.
  ///   - target: The engine to copy to. Nobody else may write to it before the copy is finished.
  ///   - options: How to treat entries of the target, and how much memory to use.
  ///   - progress: Called after each batch, on any thread.
  /// - Throws: `StorageError` with code `unsupported` if the options do not allow copying to the target, if it holds an
  ///   unfinished copy of another source, or if the source is itself an unfinished copy. The errors of reading the
  ///   source and writing the target, and `CancellationError`: after these, the copy can be resumed.
  public init(
    from source: some StorageEngine, to target: some StorageEngine, options: CopyOptions = CopyOptions(),
    progress: @escaping @Sendable (CopyProgress) -> Void = { _ in }
  ) async throws {
    let session = CopySession(source, target, options, progress)
    self.session = session
    // Subscribes before anything is read, so that no change is missed. The caller may have set a `ChangeOrigin`, whose
    // changes must not be excluded here.
    let changes =
      source.capabilities.contains(.changeFeed)
      ? try await ChangeOrigin.$current.withValue(nil) { try await source.changes() } : nil
    try await session.begin()
    try await session.copyEverything()
    follower = changes.map { changes in Task { await session.follow(changes) } }
  }

  deinit { follower?.cancel() }

  /// Copies the last changes, and compares every entry of the source with that of the target: keys, values, timestamps
  /// and order. After that, the target can be used like any other engine.
  ///
  /// Nothing may be written to the source after this is called. Entries may disappear, for example by
  /// expiring: an entry that is absent when the two are compared is removed from the target. O(N). If it
  /// throws, it can be called again. Once it has returned, another call returns the same and does nothing.
  /// Concurrent calls share the work, which is cancelled only if all of them are.
  ///
  /// - Returns: The result of the copy.
  /// - Throws: `StorageError` with code `conflict` if the source is still being written to, `corrupted` if
  ///   the target returns something else than was written; otherwise as ``init(from:to:options:progress:)``.
  @discardableResult public func finish() async throws -> CopySummary {
    await stopFollowing()
    return try await session.end()
  }

  /// Stops the copy. The target keeps what has been copied, and the copy can be resumed.
  public func cancel() async { await stopFollowing() }

  private func stopFollowing() async {
    follower?.cancel()
    await follower?.value
  }
}

extension CopySession {
  /// Copies changes until the task is cancelled or the source is closed.
  fileprivate func follow(_ changes: StorageChanges) async {
    // The keys to copy; nil for everything.
    var wanted: Set<CacheKey>? = []
    var pause = Self.pauses.lowerBound
    for await change in changes {
      switch change {
      case .keys(let keys): wanted?.formUnion(keys)
      case .everything: wanted = nil
      }
      if let keys = wanted, keys.count > Self.mostWanted { wanted = nil }
      do {
        if let wanted { try await copy(wanted) } else { try await copyEverything() }
        wanted = []
        pause = Self.pauses.lowerBound
      } catch is CancellationError {
        return
      } catch {
        // These keys are retried with the next change. Regardless of the error, `end()` checks every entry, copies the
        // missing ones, and throws the error that prevents that. The pause is there because each attempt may copy
        // everything.
        do { try await Task.sleep(for: pause) } catch { return }
        pause = min(pause * 2, Self.pauses.upperBound)
      }
    }
  }

  /// The maximum number of keys that are still to be copied. Beyond that, everything is copied.
  private static let mostWanted = 10_000
  /// The pauses after failures, which become longer.
  private static let pauses = Duration.milliseconds(100)...Duration.seconds(30)
}

extension StorageEngine {
  /// Copies all entries to another engine, with their times and in their order, and verifies the copy. See ``EngineCopy``.
  ///
  /// ```swift
  /// try await old.copy(to: new)
  /// ```
  ///
  /// If the process is killed before the copy is complete, call this again with the same engines. Nothing may be
  /// written to this engine in the meantime. The costs are those of ``EngineCopy``.
  ///
  /// - Parameters:
  ///   - target: The engine to copy to. It must be empty, unless the options say otherwise.
  ///   - options: How to treat entries of the target, and how much memory to use.
  ///   - progress: Called after each batch, on any thread.
  /// - Returns: The result of the copy.
  /// - Throws: as ``EngineCopy/init(from:to:options:progress:)`` and ``EngineCopy/finish()``.
  @discardableResult public func copy(
    to target: some StorageEngine, options: CopyOptions = CopyOptions(),
    progress: @escaping @Sendable (CopyProgress) -> Void = { _ in }
  ) async throws -> CopySummary {
    try await EngineCopy(from: self, to: target, options: options, progress: progress).finish()
  }
}
