import StockroomCore

/// The keys in byte order, so that a page of a scan need not list the directory. The first scan builds it; before that, it costs
/// nothing.
///
/// It is valid as long as two things have not changed: the version in ``SharedState``, which every engine
/// changes with every write, and the time of the last change of the directory, which shows that people or
/// other programs have added or removed files. The engine's own writes keep it valid at a cost of O(log N).
///
/// A file that another program adds to an existing directory `….more`, for long keys, is detected with the next change of any
/// other kind. The same applies to a file that it adds or removes within a few milliseconds of a commit, or of a listing with the
/// lock, since the time of the directory may then be the same.
final class KeyIndex: Sendable {
  /// The effect of a commit on the keys.
  struct Changes {
    /// Whether no other keys remain.
    let removesAll: Bool
    let keys: [(key: CacheKey, isPresent: Bool)]
  }

  /// Identifies the state that the index represents.
  struct State: Equatable {
    let version: UInt64
    let directoryChanged: Timestamp

    init(_ connection: DiskConnection, version: UInt64) throws {
      self.version = version
      directoryChanged = try connection.entries.root.status().changed
    }

    /// Whether a change of the directory from now on is certain to change its time, which file systems round, most of them to the
    /// system's clock tick. While an engine writes continuously, this is almost never true. So listings with the lock, during
    /// which no engine writes, ignore it.
    var isDistinct: Bool {
      // Wrapping: a file system may return any time.
      Timestamp.now().nanoseconds &- directoryChanged.nanoseconds > 20_000_000
        && directoryChanged.nanoseconds % 1_000_000_000 != 0
    }
  }

  private struct Contents {
    var keys: SortedKeys
    var state: State

    mutating func apply(_ changes: Changes, reaching state: State) {
      if changes.removesAll { keys = SortedKeys() }
      for change in changes.keys {
        if change.isPresent { keys.insert(change.key) } else { keys.remove(change.key) }
      }
      self.state = state
    }
  }

  private let contents = MutexProtected<Contents?>(nil)

  /// The keys in this state, if they are known.
  func keys(in state: State) -> SortedKeys? {
    contents.withLock { contents in contents?.state == state ? contents?.keys : nil }
  }

  func store(_ keys: SortedKeys, of state: State) {
    contents.withLock { contents in
      if let contents, contents.state.version > state.version { return }
      contents = Contents(keys: keys, state: state)
    }
  }

  /// Makes the commit, then records its changes. Needs the lock.
  func update(
    of connection: DiskConnection, with commit: () throws -> Void, changes: @autoclosure () -> Changes
  ) throws {
    guard contents.withLock({ $0 != nil }) else { return try commit() }
    let before = try State(connection, version: try connection.state.read().version)
    guard keys(in: before) != nil else {
      contents.withLock { $0 = nil }
      return try commit()
    }
    do { try commit() } catch {
      contents.withLock { $0 = nil }
      throw error
    }
    // If this fails, the index is dropped, and rebuilt by the next read: the commit has succeeded, and must
    // not throw (rule F4).
    let after = try? State(connection, version: try connection.state.read().version)
    let changes = changes()
    contents.withLock { contents in
      if contents?.state != before { return }
      guard let after else { return contents = nil }
      contents?.apply(changes, reaching: after)
    }
  }
}
