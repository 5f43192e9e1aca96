import Dispatch

/// The changes of a place that several processes may have open: which engines report to each other through a ``ChangeLog``, and other
/// programs through what they do to its files.
package final class ChangeFeed: Sendable {
  /// Tells the subscribers of this process.
  package let hub: ChangeHub
  /// Finds the subscribers of others that come while a write is under way.
  private let check: SubscriberCheck

  private struct State {
    var watcher: ChangeWatcher?
    /// What the last commit has found.
    var log: ChangeLog?
    /// How many commits have been written down for other processes since one was known to subscribe.
    var unusedRecords = 0
  }

  private let path: String
  private let permissions: FilePermissions
  /// By which the records of this feed are distinguished from those of others.
  private let writer = UInt64.random(in: .min ... .max)
  private let state = MutexProtected(State())

  /// - Parameter path: Where the log is while there are subscribers.
  package init(logAtPath path: String, _ permissions: FilePermissions) {
    self.path = path
    self.permissions = permissions
    check = SubscriberCheck(path: path)
    hub = ChangeHub(check)
  }

  // MARK: Subscribing

  /// A stream of the changes from now on. On the thread that commits, so that no commit of this process is under way.
  ///
  /// - Parameters:
  ///   - origin: Whose changes are left out.
  ///   - owner: The engine.
  ///   - source: Opens what the changes of others are noticed by.
  ///   - waitForCommits: Returns once the commits that are under way in other processes have ended. Those that begin later are
  ///     written down.
  package func subscribe(
    without origin: ChangeOrigin?, of owner: ObjectIdentifier, to source: () throws -> any ChangeSource,
    afterCommits waitForCommits: () throws -> Void
  ) throws -> StorageChanges {
    let (changes, isWatched) = state.withLock { state in
      // What was committed before is not reported to this subscriber.
      state.watcher?.catchUp()
      let changes = hub.subscribe(without: origin, of: owner) { [weak self] in
        // Not on the thread of who drops the stream, as a look that is under way may wait for other processes (rule C5).
        DispatchQueue.global().async { [weak self] in self?.stopWatchingIfUnused() }
      }
      return (changes, Result { try watch(&state, source, afterCommits: waitForCommits) })
    }
    // If this throws, the stream ends outside of the lock.
    try isWatched.get()
    return changes
  }

  private func watch(
    _ state: inout State, _ source: () throws -> any ChangeSource,
    afterCommits waitForCommits: () throws -> Void
  ) throws {
    if let watcher = state.watcher { return try watcher.noteSubscription() }
    let log = try ChangeLog.join(atPath: path, permissions)
    let watcher: ChangeWatcher
    do {
      watcher = try ChangeWatcher(source(), log: log, permissions, writer: writer, hub)
    } catch {
      log.leave()
      throw error
    }
    do {
      try watcher.noteSubscription()
      try waitForCommits()
      try watcher.start()
    } catch {
      watcher.stop()
      throw error
    }
    state.watcher = watcher
  }

  private func stopWatchingIfUnused() {
    // One who is about to subscribe counts, and has the lock for as long as other processes commit.
    if hub.hasSubscribers { return }
    // Within the lock: a subscriber that comes next must not get what this watcher still finds.
    let watcher = state.withLock { state in
      let watcher = hub.hasSubscribers ? nil : state.watcher.take()
      watcher?.stop()
      return watcher
    }
    withExtendedLifetime(watcher) {}
  }

  /// Ends the streams of an engine, or all, and releases what they need.
  package func finish(of owner: ObjectIdentifier? = nil) {
    hub.finish(of: owner)
    stopWatchingIfUnused()
    if owner == nil {
      state.withLock { $0.log.take()?.close() }
      check.close()
    }
  }

  // MARK: Committing

  /// What a commit is about to change.
  package struct Announcement {
    fileprivate let requests: [WriteRequest]
    fileprivate let operations: [[StorageOperation]]
    /// What was written down, if it could be.
    fileprivate let entry: Entry?
    /// Whether it should have been, and could not.
    fileprivate var isGap = false
  }

  /// A record in the log.
  struct Entry {
    let log: ChangeLog
    /// The number of the commit.
    let number: UInt64
    /// Where the record begins and ends.
    let position: Range<UInt64>
  }

  /// Writes down what a commit is about to change, if anybody subscribes. Under the lock of the place, before the commit; costs one
  /// look at a path if nobody does. It ends with ``publish(_:)`` or ``withdraw(_:)``.
  ///
  /// - Parameters:
  ///   - hasNumber: Whether the commit gets a number. A database counts none that changes nothing, and another program's may be the
  ///     next.
  ///   - number: That of the commit.
  package func announce(
    _ requests: [WriteRequest], _ operations: [[StorageOperation]], hasNumber: Bool = true,
    as number: () throws -> UInt64
  ) -> Announcement {
    guard hasNumber else { return Announcement(requests: requests, operations: operations, entry: nil) }
    // Whoever subscribes from here on may miss it.
    defer { check.noteCommit() }
    if check.isLogKnownToBeAbsent {
      return Announcement(requests: requests, operations: operations, entry: nil)
    }
    do {
      let entry = try state.withLock { state -> Entry? in
        state.log = try ChangeLog.find(atPath: path, known: state.log)
        guard let log = state.log else { return nil }
        try check.noteLog(log)
        guard let change = StorageChange(operations) else { return nil }
        if state.watcher == nil { dropIfUnused(log, &state) }
        let number = try number()
        let position = try log.append(ChangeLog.Record(commit: number, writer: writer, change: change))
        return Entry(log: log, number: number, position: position)
      }
      return Announcement(requests: requests, operations: operations, entry: entry)
    } catch {
      // What cannot be written down leaves a gap, which subscribers take for a change of everything. The gap is marked, since a commit
      // that has failed may have left a record with the same number. Where even that fails, there is nothing left to try.
      if let log = state.withLock({ $0.log }) { try? log.leaveGap() }
      return Announcement(requests: requests, operations: operations, entry: nil, isGap: true)
    }
  }

  /// A commit has failed that was announced. The next one may have its number, and be made by a program that announces nothing.
  package func withdraw(_ announcement: Announcement) {
    guard let entry = announcement.entry else { return }
    do {
      // As nobody's, so that the subscribers of this process take note of it too.
      try entry.log.append(ChangeLog.Record(commit: entry.number, writer: ~writer, change: .everything))
    } catch {
      // If this fails too, subscribers may miss a commit of such a program that comes next.
      _ = try? entry.log.leaveGap()
    }
  }

  /// Tells the subscribers, here and elsewhere, of what has been committed.
  package func publish(_ announcement: Announcement) {
    if let entry = announcement.entry, state.withLock({ $0.watcher })?.noteOwnCommit(entry) ?? true {
      // Without it subscribers take the commit for one of a program that announces nothing: for everything.
      try? entry.log.confirm(entry.position)
      entry.log.notify()
    }
    if announcement.isGap { state.withLock { $0.log }?.notify() }
    hub.send(announcement.requests, announcement.operations)
  }

  /// A commit can be read from now on whose process died in the middle of it, and told nobody, or that could not be counted. Subscribers
  /// of all processes take it for a change of everything. Under the lock of the place; also while somebody subscribes, who waits for it.
  package func noteRecovery() {
    // Not the log in the state, whose lock who subscribes has. Subscribers look at everything if there is something wrong with the log.
    guard let log = try? ChangeLog.find(atPath: path, known: nil) else { return }
    do { try log.noteMissedCommits() } catch { log.notify() }
    log.close()
  }

  /// Now and then, whether the log has been left behind by subscribers that died.
  private func dropIfUnused(_ log: ChangeLog, _ state: inout State) {
    state.unusedRecords += 1
    guard state.unusedRecords.isMultiple(of: 64) else { return }
    log.removeIfUnused()
  }
}
