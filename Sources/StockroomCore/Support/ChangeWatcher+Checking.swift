/// Checks, on the queue, for what others have changed.
extension ChangeWatcher {
  /// Sends what others have changed since the last check to the subscribers.
  ///
  /// - Parameters:
  ///   - isLastOfSeries: Whether this is the last check after a file was written, so that no commit may be in
  ///     progress. Determining that takes the lock of the place for a moment, which no other check does.
  ///   - makesLog: Whether to create the log if it has been removed.
  func check(isLastOfSeries: Bool = false, makesLog: Bool = false) {
    if state.withLock({ $0.isStopped }) { return }
    // In this order: later writes are detected, and a commit that has ended before can be read.
    watchContentsAgain()
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
        // Before the state counts as read: a check that fails afterwards would report everything each time.
        _ = try replacement.get()
        let hasSettled = try isSettled.get()
        change = try changesByOthers(&state, upTo: latest.get(), isConclusive: isLastOfSeries && hasSettled)
        if !hasSettled, state.delays.isEmpty { state.delays = Self.delays.suffix(1) }
      } catch {
        // Regardless of the cause: subscribers that reload everything find the changes, after each commit
        // and each file that is seen.
        if !state.lastCheckFailed || state.mayHaveMissedChanges || hasFiles { change = .everything }
        (state.lastCheckFailed, state.mayHaveMissedChanges) = (true, false)
        (state.files, state.foreignFiles) = ([], [])
        if case .success(let number?) = latest, number > state.known {
          state.known = number
          change = .everything
        }
      }
      // Nothing else may happen for a long time.
      if state.lastCheckFailed || state.isUnwatched, state.timer == nil, state.delays.isEmpty {
        state.delays = [Self.delayOfRetry]
      }
      setTimer(&state)
      return change
    }
    if let change { hub.send(change) }
  }

  /// Watches the files that commits write again, if no more checks are scheduled.
  ///
  /// While the system does not allow that, commits are found by their number. The subscribers receive everything
  /// when that begins and when it ends, and not with each check.
  private func watchContentsAgain() {
    state.withLock { state in
      if state.isStopped || state.timer != nil || !state.delays.isEmpty || !state.contents.isEmpty { return }
      var isUnwatched = false
      do { state.contents = try watchContents(state.log) } catch { isUnwatched = true }
      if isUnwatched != state.isUnwatched { state.mayHaveMissedChanges = true }
      state.isUnwatched = isUnwatched
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
    let log = try ChangeLog.join(atPath: known.path, like: model) { state.withLock { $0.isStopped } }
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
    // Before the removed file is closed, which its watch would report as another interruption.
    if !state.isStopped { state.logWatch = replacement.watch }
    state.log.close()
    state.log = replacement.log
    state.missedCommits = replacement.missedCommits
    state.position = replacement.end
    state.mayHaveMissedChanges = true
  }

  /// The changes by others since the last check.
  ///
  /// - Parameter isConclusive: Whether a commit that is not confirmed by now was not made by the writer that announced
  ///   it.
  private func changesByOthers(
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
    guard !state.mayHaveMissedChanges, !state.lastCheckFailed,
      let (change, logged) = try readLog(&state, upTo: latest, isConclusive: isConclusive)
    else {
      state.known = latest
      state.position = try state.log.end()
      state.reported = state.position
      state.pending = nil
      (state.lastCheckFailed, state.mayHaveMissedChanges) = (false, false)
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
