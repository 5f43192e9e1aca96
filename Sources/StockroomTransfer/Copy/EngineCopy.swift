public import StockroomCore

/// A copy of all entries of one engine to another, that follows the source until the program switches over.
///
/// ```swift
/// let copy = try await EngineCopy(from: old, to: new)   // others go on to read and write `old`
/// // … stop writing
/// try await copy.finish()                                // from now on `new` is the one
/// ```
///
/// Copied are keys, values, both times and the order: see <doc:MovingData>. Engines with the capability `changeFeed` may be written to until
/// ``finish()`` is called: entries that are written, removed and written again, and `removeAllData()`, are followed. Of others nothing
/// may change from the beginning to the end.
///
/// A copy that is killed, cancelled or dropped leaves a target that no other copy than one with the option ``CopyTarget/resume`` accepts,
/// which goes on. The target has an entry more until it is finished.
///
/// Memory: the keys, times and digests of all entries of source and target, some 150 bytes each beside the bytes of the key, and
/// ``CopyOptions/batchSize`` of values; up to 256 values where small ones are followed by very large ones. Every value of the source is
/// read three times and every one of the target once; ``finish()`` reads each of both once of that. Those of an engine of your own are
/// read once more each time they are compared, to find out the order: all together if it is not that of the times of creation. An engine
/// that lists its keys by reading all values, as layers with lifetimes or hidden names do, has all of these in memory meanwhile.
public final class EngineCopy: Sendable {
  private let session: CopySession
  /// Follows the source.
  private let follower: Task<Void, Never>?

  /// Copies everything that there is. When this returns, the source is being followed.
  ///
  /// - Parameters:
  ///   - source: What is copied. It is not changed.
  ///   - target: What it is copied to. Nobody else may write to it before the copy is finished.
  ///   - options: What to do about entries of the target, and how much memory to take.
  ///   - progress: Is called after each batch, on any thread.
  /// - Throws: `StorageError` with code `unsupported` if the target may not be copied to, as the options say, holds an unfinished copy of
  ///   another source, or the source is itself an unfinished copy; what reading the source and writing the target throw;
  ///   `CancellationError`. All but the first leave a target that can be resumed.
  public init(
    from source: some StorageEngine, to target: some StorageEngine, options: CopyOptions = CopyOptions(),
    progress: @escaping @Sendable (CopyProgress) -> Void = { _ in }
  ) async throws {
    let session = CopySession(source, target, options, progress)
    self.session = session
    // Before anything is read, so that nothing is missed. Who copies may have an origin whose changes are not to be left out here.
    let changes =
      source.capabilities.contains(.changeFeed)
      ? try await ChangeOrigin.$current.withValue(nil) { try await source.changes() } : nil
    try await session.begin()
    try await session.copyEverything()
    follower = changes.map { changes in Task { await session.follow(changes) } }
  }

  deinit { follower?.cancel() }

  /// Brings over what has changed last, and compares every entry of the source with that of the target: keys, values, times and order.
  /// Then the target is like any other place.
  ///
  /// Nothing may be written to the source any more when this is called. Entries that go away, since they expire say, may do so: what is gone
  /// when the two are compared is removed from the target. O(N). If it throws, it can be called again. Once it has returned, another call
  /// returns the same and does nothing. Calls that are made meanwhile share the work, which is cancelled only if all of them are.
  ///
  /// - Returns: What has been copied.
  /// - Throws: `StorageError` with code `conflict` if the source goes on to be written to, `corrupted` if the target returns something else
  ///   than was written; otherwise as ``init(from:to:options:progress:)``.
  @discardableResult public func finish() async throws -> CopySummary {
    await stopFollowing()
    return try await session.end()
  }

  /// Ends the copy. The target remains as it is, and can be resumed.
  public func cancel() async { await stopFollowing() }

  private func stopFollowing() async {
    follower?.cancel()
    await follower?.value
  }
}

extension CopySession {
  /// Brings over what changes, until the task is cancelled or the source closed.
  fileprivate func follow(_ changes: StorageChanges) async {
    // What is to be brought over; nil for everything.
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
        // It is tried again with the next change. Whatever it is, `end()` looks at every entry, brings over what is missing, and
        // throws what keeps it from doing so. Not at once, since each may be an attempt to copy everything.
        do { try await Task.sleep(for: pause) } catch { return }
        pause = min(pause * 2, Self.pauses.upperBound)
      }
    }
  }

  /// Of how many keys it is remembered that they could not be brought over.
  private static let mostWanted = 10_000
  /// How long nothing is tried after a failure: more and more.
  private static let pauses = Duration.milliseconds(100)...Duration.seconds(30)
}

extension StorageEngine {
  /// Copies all entries to another engine, with their times and in their order, and verifies the copy. See ``EngineCopy``.
  ///
  /// ```swift
  /// try await old.copy(to: new)
  /// ```
  ///
  /// If it was killed on the way, call it again with the same engines. Nothing may be written to this engine meanwhile. Costs as
  /// ``EngineCopy``.
  ///
  /// - Parameters:
  ///   - target: What the entries are copied to. It must be empty, unless the options say otherwise.
  ///   - options: What to do about entries of the target, and how much memory to take.
  ///   - progress: Is called after each batch, on any thread.
  /// - Returns: What has been copied.
  /// - Throws: as ``EngineCopy/init(from:to:options:progress:)`` and ``EngineCopy/finish()``.
  @discardableResult public func copy(
    to target: some StorageEngine, options: CopyOptions = CopyOptions(),
    progress: @escaping @Sendable (CopyProgress) -> Void = { _ in }
  ) async throws -> CopySummary {
    try await EngineCopy(from: self, to: target, options: options, progress: progress).finish()
  }
}
