@preconcurrency import Dispatch

/// Detects commits by others to a place, as long as there are subscribers in this process.
///
/// Notifications of the file system only trigger a check, and the number of the latest commit shows whether
/// something has changed. The ``ChangeLog`` contains the changes; a commit that is not logged may have
/// changed everything.
final class ChangeWatcher: Sendable {
  private struct State {
    var log: ChangeLog
    /// The last value of ``ChangeLog/missedCommits()``.
    var missedCommits: UInt64
    /// The last commit up to which the subscribers have received everything.
    var known: UInt64 = 0
    /// The position in the log of the first commit after that one, or of the first one before it for which it
    /// is unknown whether the announced commit was made, or another one in its place.
    var position: UInt64 = 0
    /// The position in the log up to which everything has been reported.
    var reported: UInt64 = 0
    /// Whether something has been missed.
    var mayHaveMissedChanges = false
    /// Whether the last check has failed. The subscribers have then received everything, and receive it again
    /// once one succeeds.
    var isBlind = false
    var isStopped = false
    /// The files of entries that anyone has changed since the last check.
    var files: Set<CacheKey> = []
    /// Those of them that have been created or written in place, which no commit does: it moves complete
    /// files into the directory.
    var foreignFiles: Set<CacheKey> = []
    /// The changes of the commits in the log that cannot be read yet.
    var pending: StorageChange?
    /// Watches the log.
    var logWatch: FileWatch?
    /// Watches on the files that commits write. None while checks are scheduled: a later write need not wake
    /// anyone.
    var contents: [FileWatch] = []
    /// A watch on the directory of entries.
    var names: FileWatch?
    /// The delays of the remaining checks, if nothing else happens.
    var delays = ArraySlice<DispatchTimeInterval>()
    var timer: (any DispatchSourceTimer)?
  }

  private let source: any ChangeSource
  private let permissions: FilePermissions
  private let writer: UInt64
  private let hub: ChangeHub
  private let queue = DispatchQueue(label: "Stockroom.ChangeWatcher")
  private let state: MutexProtected<State>

  /// When to check after a file was written: a commit can often be read only somewhat later.
  private static let delays: [DispatchTimeInterval] = [
    .milliseconds(1), .milliseconds(4), .milliseconds(16), .milliseconds(64),
  ]
  /// When to check again after a check has failed, or the system has not let a file be watched.
  private static let delayOfRetry = DispatchTimeInterval.seconds(1)

  /// - Throws: ``StorageError``; the source is closed then.
  init(
    _ source: any ChangeSource, log: ChangeLog, _ permissions: FilePermissions, writer: UInt64,
    _ hub: ChangeHub
  ) throws {
    let missedCommits: UInt64
    do {
      missedCommits = try log.missedCommits()
    } catch {
      source.close()
      throw error
    }
    self.source = source
    self.permissions = permissions
    self.writer = writer
    self.hub = hub
    state = MutexProtected(State(log: log, missedCommits: missedCommits))
  }

  /// Notifies writers of a new subscriber, so that they report commits that they have not acknowledged yet.
  ///
  /// Call it once everything later is reported to the subscriber: a writer that has learned of it before its
  /// commit relies on its record.
  func noteSubscription() throws { try state.withLock { try $0.log.noteSubscription() } }

  /// Starts watching. No commit may be in progress.
  func start() throws {
    // A check before the starting position is known would find earlier changes.
    try queue.sync {
      let log = state.withLock { $0.log }
      let logWatch = try watchLog(log)
      let contents = try watchContents(log)
      let names = try watchNames()
      let known = try source.latestCommit()
      #if !canImport(Darwin)
        // Another watch of this process may share the directory, with events that the system has not
        // delivered yet.
        if names != nil { FileWatch.deliverPending() }
      #endif
      try state.withLock { state in
        (state.files, state.foreignFiles) = ([], [])
        state.position = try state.log.end()
        state.reported = state.position
        state.known = known ?? 0
        state.mayHaveMissedChanges = known == nil
        (state.logWatch, state.contents, state.names) = (logWatch, contents, names)
      }
      if known == nil { lookLater() }
    }
  }

  private func watchLog(_ log: ChangeLog) throws -> FileWatch {
    try FileWatch(path: log.path, .attributes) { [weak self] event in
      if case .interruption = event { self?.noteInterruption() }
      self?.lookNow()
    }
  }

  private func watchContents(_ log: ChangeLog) throws -> [FileWatch] {
    let paths = source.writtenFiles + (log.isInPlace ? [] : source.filesWrittenWithoutLog)
    return try paths.map { path in
      try FileWatch(path: path, .contents) { [weak self] event in
        if case .interruption = event { self?.noteInterruption() }
        self?.noteContents()
      }
    }
  }

  private func watchNames() throws -> FileWatch? {
    #if canImport(Darwin)
      return nil
    #else
      return try source.entryDirectory.map {
        try FileWatch(path: $0, .names) { [weak self] in self?.noteFile($0) }
      }
    #endif
  }

  /// Releases everything. Waits for a check in progress.
  func stop() {
    // Released outside the lock.
    let watches = state.withLock { state -> [FileWatch?]? in
      if state.isStopped { return nil }
      state.isStopped = true
      state.timer.take()?.cancel()
      return [state.logWatch.take(), state.names.take()] + exchange(&state.contents, with: [])
    }
    guard watches != nil else { return }
    queue.sync {
      source.close()
      state.withLock { $0.log.leave() }
    }
  }

  // MARK: When to check

  private func noteInterruption() { state.withLock { $0.mayHaveMissedChanges = true } }

  /// A file that commits write was written, and will not be watched again before the last check.
  private func noteContents() {
    let watches = state.withLock { exchange(&$0.contents, with: []) }
    lookLater()
    withExtendedLifetime(watches) {}
  }

  private func noteFile(_ event: FileWatch.Event) {
    state.withLock { state in
      if case .change(let name?, let isInPlace) = event {
        if let key = source.key(ofFile: name) {
          state.files.insert(key)
          if isInPlace { state.foreignFiles.insert(key) }
        }
      } else {
        state.mayHaveMissedChanges = true
      }
    }
    lookLater()
  }

  /// Notifies the subscribers of all earlier commits, before a new one is added. Creates the log if it has
  /// been removed: without it, writers would not learn of the new one.
  func catchUp() { queue.sync { look(makesLog: true) } }

  private func lookNow() {
    queue.async { [weak self] in self?.look() }
  }

  /// Checks several times, at growing intervals.
  private func lookLater() {
    state.withLock { state in
      if state.isStopped { return }
      state.delays = Self.delays[...]
      setTimer(&state)
    }
  }

  private func setTimer(_ state: inout State) {
    guard state.timer == nil, let delay = state.delays.popFirst() else { return }
    let timer = DispatchSource.makeTimerSource(queue: queue)
    timer.setEventHandler { [weak self] in
      guard let self else { return }
      let isLast = self.state.withLock { state in
        state.timer.take()?.cancel()
        return state.delays.isEmpty
      }
      look(isLastOfSeries: isLast)
    }
    timer.schedule(deadline: .now() + delay, leeway: .microseconds(100))
    timer.activate()
    state.timer = timer
  }

  // MARK: Commits of this process

  /// Records a commit of this process, so that it need not be searched for.
  ///
  /// - Returns: Whether subscribers must be woken for it: others, or this one, which must first determine
  ///   what was committed before.
  func noteOwnCommit(_ entry: ChangeFeed.Entry) -> Bool {
    // The files of a directory of entries are compared with the log.
    guard source.entryDirectory == nil else { return true }
    return state.withLock { state in
      guard !state.isStopped, !state.mayHaveMissedChanges, !state.isBlind,
        state.log.isSameFile(as: entry.log),
        state.position == entry.position.lowerBound, state.known &+ 1 == entry.number
      else { return true }
      state.position = entry.position.upperBound
      state.reported = state.position
      state.known = entry.number
      return state.log.hasOtherSubscribers
    }
  }

  // MARK: Checking, on the queue

  /// - Parameters:
  ///   - isLastOfSeries: Whether this is the last check after a file was written, so that no commit may be in
  ///     progress. Determining that takes the lock of the place for a moment, which no other check does.
  ///   - makesLog: Whether to create the log if it has been removed.
  private func look(isLastOfSeries: Bool = false, makesLog: Bool = false) {
    if state.withLock({ $0.isStopped }) { return }
    // In this order: later writes are detected, and a commit that has ended before can be read.
    let isWatched = Result { try watchContentsAgain() }
    let isSettled = Result { try !isLastOfSeries || source.isSettled() }
    let readable = Result { try source.latestCommit() }
    // Nothing is made in a place that cannot be read.
    let replacement = Result {
      if case .success(_?) = readable { try joinAgain(makesLog: makesLog) } else { nil as Replacement? }
    }
    let isReplaced = if case .success(_?) = replacement { true } else { false }
    // That may have taken long.
    let latest = isReplaced ? Result { try source.latestCommit() } : readable
    #if !canImport(Darwin)
      // The files of commits up to that one are then known, and are not attributed to another program later.
      if source.entryDirectory != nil { FileWatch.deliverPending() }
    #endif
    let change = state.withLock { state -> StorageChange? in
      if case .success(let replacement?) = replacement { replace(replacement, &state) }
      if state.isStopped { return nil }
      // A check that fails may have taken them.
      let hasFiles = !state.files.isEmpty
      var change: StorageChange?
      do {
        _ = try replacement.get()
        let isConclusive = if case .success(true) = isSettled { isLastOfSeries } else { false }
        change = try look(&state, upTo: latest.get(), isConclusive: isConclusive)
        try isWatched.get()
        if try !isSettled.get(), state.delays.isEmpty { state.delays = Self.delays.suffix(1) }
      } catch {
        // Regardless of the cause: subscribers that reload everything find the changes, after each commit
        // and each file that is seen.
        if !state.isBlind || state.mayHaveMissedChanges || hasFiles { change = .everything }
        (state.isBlind, state.mayHaveMissedChanges) = (true, false)
        (state.files, state.foreignFiles) = ([], [])
        if case .success(let number?) = latest, number > state.known {
          state.known = number
          change = .everything
        }
        // Nothing else may happen for a long time.
        if state.delays.isEmpty { state.delays = [Self.delayOfRetry] }
      }
      setTimer(&state)
      return change
    }
    if let change { hub.send(change) }
  }

  /// Watches the files that commits write again, if no more checks are scheduled.
  private func watchContentsAgain() throws {
    try state.withLock { state in
      if state.isStopped || state.timer != nil || !state.delays.isEmpty || !state.contents.isEmpty { return }
      state.contents = try watchContents(state.log)
    }
  }

  /// The log that is now at the path of the one that was joined before.
  private struct Replacement {
    let log: ChangeLog
    let watch: FileWatch
    let missedCommits: UInt64
    let end: UInt64
  }

  /// Joins the log that is now at the path, if it is another one. Without the lock of the state, which commits of this
  /// process take: it may wait for another process for long.
  ///
  /// A log that has been removed is only created again for a new subscriber, as the whole place may be about
  /// to be removed. Without it, a commit may have changed everything, and is found by the files that it
  /// writes.
  private func joinAgain(makesLog: Bool) throws -> Replacement? {
    let known = state.withLock { $0.log }
    guard try !known.isInPlace && (makesLog || FileIdentity(path: known.path) != nil) else { return nil }
    // Nor does ``stop()`` wait for that.
    let log = try ChangeLog.join(atPath: known.path, permissions) { state.withLock { $0.isStopped } }
    do {
      let replacement = Replacement(
        log: log, watch: try watchLog(log), missedCommits: try log.missedCommits(), end: try log.end())
      try log.noteSubscription()
      return replacement
    } catch {
      log.leave()
      throw error
    }
  }

  /// Call it also once the watcher is to stop, which leaves the log.
  private func replace(_ replacement: Replacement, _ state: inout State) {
    state.log.close()
    state.log = replacement.log
    state.missedCommits = replacement.missedCommits
    state.position = replacement.end
    state.mayHaveMissedChanges = true
    if !state.isStopped { state.logWatch = replacement.watch }
  }

  /// The changes by others since the last check.
  ///
  /// - Parameter isConclusive: Whether a commit that is not confirmed by now was not made by the writer that announced
  ///   it.
  private func look(
    _ state: inout State, upTo latest: UInt64?, isConclusive: Bool
  ) throws -> StorageChange? {
    // This process may have committed in the meantime.
    let latest = if let latest, latest < state.known { try source.latestCommit() } else { latest }
    guard let latest else {
      if state.delays.isEmpty { state.delays = Self.delays[...] }
      return nil
    }
    // A truncated log would remain unusable.
    if try state.log.repairIfTruncated() { state.mayHaveMissedChanges = true }
    let missedCommits = try state.log.missedCommits()
    if missedCommits != state.missedCommits {
      state.missedCommits = missedCommits
      state.mayHaveMissedChanges = true
    }
    let files = exchange(&state.files, with: [])
    var foreign = exchange(&state.foreignFiles, with: [])
    guard !state.mayHaveMissedChanges, !state.isBlind,
      let (change, logged) = try readLog(&state, upTo: latest, isConclusive: isConclusive)
    else {
      state.known = latest
      state.position = try state.log.end()
      state.reported = state.position
      state.pending = nil
      (state.isBlind, state.mayHaveMissedChanges) = (false, false)
      return .everything
    }
    // Files without a corresponding commit have been changed by another program, and so have those that were
    // not moved.
    switch logged {
    case .everything?: break
    case .keys(let keys)?: foreign.formUnion(files.subtracting(keys))
    case nil: foreign.formUnion(files)
    }
    return foreign.isEmpty ? change : .keys(foreign).union(change)
  }

  /// The changes of the commits by others up to the latest, and of all commits that are or were in the log.
  /// Nil if something is missing, or if a commit was announced and another program has made one in its place.
  private func readLog(
    _ state: inout State, upTo latest: UInt64, isConclusive: Bool
  ) throws -> (change: StorageChange?, logged: StorageChange?)? {
    guard latest >= state.known, let records = try state.log.records(from: state.position) else { return nil }
    let reported = state.reported
    // Wrapping: a corrupted file may contain any number.
    var missing = state.known &+ 1
    var change: StorageChange?
    var logged = state.pending.take()
    var isUnconfirmed = false
    for (index, (record, end)) in records.enumerated() {
      if end > reported { logged = record.change.union(logged) }
      if record.commit > latest {
        state.pending = record.change.union(state.pending)
        continue
      }
      if mayBeAnothers(record, before: records[(index + 1)...].lazy.map(\.record)) {
        if isConclusive, end <= reported { return nil }
        isUnconfirmed = true
      }
      if !isUnconfirmed { state.position = end }
      if end <= reported { continue }
      state.reported = end
      // A commit that was retried has several records.
      if record.commit == missing { missing &+= 1 } else if record.commit > missing { return nil }
      if record.writer != writer { change = record.change.union(change) }
    }
    guard missing > latest else { return nil }
    state.known = latest
    // Until it is confirmed, or known that it will not be.
    if isUnconfirmed, state.timer == nil, state.delays.isEmpty { state.delays = Self.delays[...] }
    return (change, logged)
  }

  /// Whether the commit with the record's number may be that of a program that does not use the log, since
  /// the writer of the record has died before it: it has not been confirmed.
  private func mayBeAnothers(
    _ record: ChangeLog.Record, before later: some Sequence<ChangeLog.Record>
  ) -> Bool {
    // If entries are files, only engines count commits.
    guard source.entryDirectory == nil, !record.isConfirmed, record.writer != writer else { return false }
    if case .everything = record.change { return false }
    return !later.contains { $0.commit == record.commit }
  }
}
