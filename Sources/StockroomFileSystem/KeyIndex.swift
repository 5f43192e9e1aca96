import StockroomCore

/// The keys in byte order, so that a page of a scan need not list the directory. Built by the first scan; costs nothing
/// before.
///
/// It is right as long as two things are what they were: the version in ``SharedState``, which every engine changes with
/// every write, and when the directory was changed, which tells of files that people and other programs put there or
/// remove. The engine's own writes keep it right at a cost of O(log N).
///
/// A file that another program puts beside long keys, into a directory `….more` that is there already, is noticed with the next
/// change of any other kind. So is one that it puts there or removes in the very milliseconds of a commit, or of a listing with the lock, of
/// which the directory does not tell it.
final class KeyIndex: Sendable {
  /// What a commit does to the keys.
  struct Changes {
    /// Whether no other keys are left.
    let removesAll: Bool
    let keys: [(key: CacheKey, isPresent: Bool)]
  }

  /// What the index is of.
  struct Moment: Equatable {
    let version: UInt64
    let directoryChanged: Timestamp

    init(_ connection: DiskConnection, version: UInt64) throws {
      self.version = version
      directoryChanged = try connection.entries.root.status().changed
    }

    /// Whether a change that comes now is sure to change the time. File systems round it, most of them to the system's
    /// clock tick. While an engine writes all the time there is hardly such a moment: listings with the lock, during which no engine writes, do
    /// without.
    var isDistinct: Bool {
      // Wrapping: a file system may say any time.
      Timestamp.now().nanoseconds &- directoryChanged.nanoseconds > 20_000_000
        && directoryChanged.nanoseconds % 1_000_000_000 != 0
    }
  }

  private struct Contents {
    var keys: SortedKeys
    var moment: Moment

    mutating func apply(_ changes: Changes, at moment: Moment) {
      if changes.removesAll { keys = SortedKeys() }
      for change in changes.keys {
        if change.isPresent { keys.insert(change.key) } else { keys.remove(change.key) }
      }
      self.moment = moment
    }
  }

  private let contents = MutexProtected<Contents?>(nil)

  /// The keys at the moment, if they are known.
  func keys(at moment: Moment) -> SortedKeys? {
    contents.withLock { contents in contents?.moment == moment ? contents?.keys : nil }
  }

  func store(_ keys: SortedKeys, at moment: Moment) {
    contents.withLock { contents in
      if let contents, contents.moment.version > moment.version { return }
      contents = Contents(keys: keys, moment: moment)
    }
  }

  /// Does the commit, then takes note of what it has changed. Needs the lock.
  func update(
    of connection: DiskConnection, with commit: () throws -> Void, changes: @autoclosure () -> Changes
  ) throws {
    guard contents.withLock({ $0 != nil }) else { return try commit() }
    let before = try Moment(connection, version: try connection.state.read().version)
    guard keys(at: before) != nil else {
      contents.withLock { $0 = nil }
      return try commit()
    }
    do { try commit() } catch {
      contents.withLock { $0 = nil }
      throw error
    }
    // If this fails the index is dropped, and made again by the next read: the commit has happened, and must not throw (rule F4).
    let after = try? Moment(connection, version: try connection.state.read().version)
    let changes = changes()
    contents.withLock { contents in
      if contents?.moment != before { return }
      guard let after else { return contents = nil }
      contents?.apply(changes, at: after)
    }
  }
}
