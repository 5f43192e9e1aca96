/// Checks, on the queue, for what others have changed.
extension ChangeWatcher {
  /// - Parameters:
  ///   - isLastOfSeries: Whether this is the last check after a file was written, so that no commit may be in
  ///     progress. Determining that takes the lock of the place for a moment, which no other check does.
  ///   - makesLog: Whether to create the log if it has been removed.
  func look(isLastOfSeries: Bool = false, makesLog: Bool = false) {
    if state.withLock({ $0.isStopped }) { return }
    // In this order: later writes are detected, and a commit that has ended before can be read.
    watchContentsAgain()
    let isSettled = Result { try !isLastOfSeries || source.isSettled() }
    let latest = Result { try source.latestCommit() }
    #if !canImport(Darwin)
      // The files of commits up to that one are then known, and are not attributed to another program later.
      if source.entryDirectory != nil { FileWatch.deliverPending() }
    #endif
    let change = state.withLock { state -> StorageChange? in
      if state.isStopped { return nil }
      // A check that fails may have taken them.
      let hasFiles = !state.files.isEmpty
      var change: StorageChange?
      do {
        let isConclusive = if case .success(true) = isSettled { isLastOfSeries } else { false }
        change = try look(&state, upTo: latest.get(), isConclusive: isConclusive, makesLog: makesLog)
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
      }
      // Nothing else may happen for a long time.
      if state.isBlind || state.isUnwatched, state.timer == nil, state.delays.isEmpty {
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

  /// The changes by others since the last check.
  ///
  /// - Parameters:
  ///   - isConclusive: Whether a commit that is not confirmed by now was not made by the writer that announced
  ///     it.
  ///   - makesLog: Whether to create the log if it has been removed.
  private func look(
    _ state: inout State, upTo latest: UInt64?, isConclusive: Bool, makesLog: Bool
  ) throws -> StorageChange? {
    // This process may have committed in the meantime.
    let latest = if let latest, latest < state.known { try source.latestCommit() } else { latest }
    guard let latest else {
      if state.delays.isEmpty { state.delays = Self.delays[...] }
      return nil
    }
    // A log that has been removed is only created again for a new subscriber, as the whole place may be about
    // to be removed. Without it, a commit may have changed everything, and is found by the files that it
    // writes. A truncated log would remain unusable.
    if try state.log.repairIfTruncated() { state.mayHaveMissedChanges = true }
    if try !state.log.isInPlace && (makesLog || FileIdentity(path: state.log.path) != nil) {
      let log = try ChangeLog.join(atPath: state.log.path, permissions)
      let logWatch = try watchLog(log)
      state.missedCommits = try log.missedCommits()
      try log.noteSubscription()
      state.position = try log.end()
      // Before the removed file is closed, which its watch would report as another interruption.
      state.logWatch = logWatch
      state.log.close()
      state.log = log
      state.mayHaveMissedChanges = true
    }
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
