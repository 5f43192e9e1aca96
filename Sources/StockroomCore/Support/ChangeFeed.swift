import Dispatch
import Synchronization

/// The changes of a place that several processes may have open. Engines report them to each other through a ``ChangeLog``;
/// changes by other programs are detected by watching the files of the place.
package final class ChangeFeed: Sendable {
  /// Notifies the subscribers of this process.
  package let hub: ChangeHub
  /// Detects subscribers of other feeds that arrive while a write is in progress.
  private let check: SubscriberCheck

  private struct State {
    var watcher: ChangeWatcher?
    /// The log that the last commit has found.
    var log: ChangeLog?
    /// The number of commits that this feed has logged while it had no subscribers itself.
    var unusedRecords = 0
  }

  private let path: String
  private let model: String
  /// Distinguishes the records of this feed from those of others.
  private let writer = UInt64.random(in: .min ... .max)
  private let state = MutexProtected(State())
  /// Whether the state has a watcher, or is about to have one. Written with the lock of the state, and read without it.
  private let hasWatcher = Atomic(false)

  /// - Parameters:
  ///   - path: The path of the log while there are subscribers.
  ///   - model: The path of a file of the place, which every user of the place can access. The log gets its permissions and, as
  ///     far as the system allows, its group and owner, no matter which user subscribes first.
  package init(logAtPath path: String, like model: String) {
    self.path = path
    self.model = model
    check = SubscriberCheck(path: path)
    hub = ChangeHub(check)
  }

  // MARK: Subscribing

  /// A stream of the changes from now on. Call it on the thread that commits, so that no commit of this
  /// process is in progress.
  ///
  /// - Parameters:
  ///   - origin: The origin whose changes are excluded.
  ///   - owner: The engine.
  ///   - source: Opens the source that detects the changes of others.
  ///   - waitForCommits: Returns once the commits that are in progress in other processes have ended. Later
  ///     ones are logged.
  package func subscribe(
    without origin: ChangeOrigin?, of owner: ObjectIdentifier, to source: () throws -> any ChangeSource,
    afterCommits waitForCommits: () throws -> Void
  ) throws -> StorageChanges {
    let (changes, isWatched) = state.withLock { state in
      // Earlier commits are not reported to this subscriber.
      state.watcher?.catchUp()
      let changes = hub.subscribe(without: origin, of: owner) { [weak self] in
        // Stopping waits for a check in progress, which may wait for other processes. So it must not run on the thread that
        // releases the stream (rule C5).
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
    hasWatcher.store(true, ordering: .sequentiallyConsistent)
    defer { hasWatcher.store(state.watcher != nil, ordering: .sequentiallyConsistent) }
    let log = try ChangeLog.join(atPath: path, like: model)
    let start = ContinuousClock.now
    let watcher: ChangeWatcher
    do {
      watcher = try ChangeWatcher(source(), log: log, like: model, writer: writer, hub)
    } catch {
      log.leave()
      throw error
    }
    do {
      try waitForCommits()
      try watcher.start()
      try watcher.noteSubscription()
    } catch {
      watcher.stop()
      throw error
    }
    // Writers rely on this time (``SubscriberCheck``), which has almost always passed by now.
    while ContinuousClock.now < start + SubscriberCheck.absenceLifetime {}
    state.watcher = watcher
  }

  private func stopWatchingIfUnused() {
    // Checked before the lock is taken, since a subscription in progress, which counts as a subscriber, holds the lock while it
    // waits for commits of other processes.
    if hub.hasSubscribers { return }
    // Stopped within the lock, since the next subscriber must not receive changes that this watcher still finds.
    let watcher = state.withLock { state in
      let watcher = hub.hasSubscribers ? nil : state.watcher.take()
      watcher?.stop()
      hasWatcher.store(state.watcher != nil, ordering: .sequentiallyConsistent)
      return watcher
    }
    withExtendedLifetime(watcher) {}
  }

  /// Whether ``finish()`` may have to wait for a check in progress, which may wait for other processes, even if
  /// all streams have ended. No subscription may be in progress.
  package var isWatching: Bool { hasWatcher.load(ordering: .sequentiallyConsistent) }

  /// Ends the streams of an engine, and releases their resources asynchronously if that may have to wait.
  package func finishWithoutWaiting(of owner: ObjectIdentifier) {
    hub.finish(of: owner)
    if isWatching { DispatchQueue.global().async { self.stopWatchingIfUnused() } }
  }

  /// Ends all streams, and releases their resources. Waits for a check in progress.
  package func finish() {
    hub.finish()
    stopWatchingIfUnused()
    state.withLock { $0.log.take()?.close() }
    check.close()
  }

  // MARK: Committing

  /// The changes that a commit is about to make.
  package struct Announcement {
    fileprivate let requests: [WriteRequest]
    fileprivate let operations: [[StorageOperation]]
    /// The logged record, if it could be written.
    fileprivate let entry: Entry?
    /// Whether a record should have been logged, but could not.
    fileprivate var isGap = false
  }

  /// A record in the log.
  struct Entry {
    let log: ChangeLog
    /// The number of the commit.
    let number: UInt64
    /// The range of the record in the log.
    let position: Range<UInt64>
  }

  /// Logs the changes that a commit is about to make, if there are subscribers. Call it under the lock of the place, before the
  /// commit; without subscribers it costs one check of a path. ``publish(_:)`` or ``withdraw(_:)`` must follow.
  ///
  /// - Parameters:
  ///   - hasNumber: Whether the commit gets a number. A database does not count a commit that changes
  ///     nothing, and the next number may be that of another program's commit.
  ///   - number: The number of the commit.
  package func announce(
    _ requests: [WriteRequest], _ operations: [[StorageOperation]], hasNumber: Bool = true,
    as number: () throws -> UInt64
  ) -> Announcement {
    guard hasNumber else { return Announcement(requests: requests, operations: operations, entry: nil) }
    // A subscriber that joins after this call may miss the commit.
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
      // A change that cannot be logged leaves a gap, which subscribers treat as a change of everything. The
      // gap is marked, since a failed commit may have left a record with the same number. If even that fails,
      // there is nothing left to try.
      if let log = state.withLock({ $0.log }) { try? log.leaveGap() }
      return Announcement(requests: requests, operations: operations, entry: nil, isGap: true)
    }
  }

  /// Call it if an announced commit has failed. The next commit may get the same number and be made by a program that does not
  /// use the log, so this logs a second record with that number, which reports a change of everything.
  package func withdraw(_ announcement: Announcement) {
    guard let entry = announcement.entry else { return }
    do {
      // With the number of another writer, so that the subscribers of this process receive the change too.
      try entry.log.append(ChangeLog.Record(commit: entry.number, writer: ~writer, change: .everything))
    } catch {
      // If this fails too, subscribers may miss a later commit of such a program.
      _ = try? entry.log.leaveGap()
    }
  }

  /// Notifies the subscribers, in this and other processes, of a commit.
  package func publish(_ announcement: Announcement) {
    if let entry = announcement.entry, state.withLock({ $0.watcher })?.noteOwnCommit(entry) ?? true {
      // Without the confirmation, subscribers treat the commit as one of a program that does not use the log: as a change of
      // everything.
      try? entry.log.confirm(entry.position)
      entry.log.notify()
    }
    if announcement.isGap { state.withLock { $0.log }?.notify() }
    hub.send(announcement.requests, announcement.operations)
  }

  /// Reports a commit that can be read from now on, but whose process died before notifying anyone, or that
  /// could not be counted. Subscribers of all processes treat it as a change of everything. Call it under the
  /// lock of the place, even while a subscription in progress waits for it.
  package func noteRecovery() {
    // The log in the state cannot be used, since a subscription in progress may hold the lock of the state. If the log cannot be
    // opened, subscribers detect that themselves, and reload everything.
    guard let log = try? ChangeLog.find(atPath: path, known: nil) else { return }
    do { try log.noteMissedCommits() } catch { log.notify() }
    log.close()
  }

  /// Checks from time to time whether the log has been left behind by subscribers that died.
  private func dropIfUnused(_ log: ChangeLog, _ state: inout State) {
    state.unusedRecords += 1
    guard state.unusedRecords.isMultiple(of: 64) else { return }
    log.removeIfUnused()
  }
}
