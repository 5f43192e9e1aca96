/// Checks for changes by other engines and programs, on the queue.
extension ChangeWatcher {
  /// Sends the changes that others have made since the last check to the subscribers.
  ///
  /// - Parameters:
  ///   - isLastOfSeries: Whether this is the last check after a file was written, so that no commit may be in progress.
  ///     Determining that takes the lock of the place briefly, which no other check does.
  ///   - makesLog: Whether to create the log if it has been removed.
  func check(isLastOfSeries: Bool = false, makesLog: Bool = false) {
    if state.withLock({ $0.isStopped }) { return }
    // The order matters: the watches detect all writes from here on, and a commit that has ended before its number is read can be
    // read.
    watchContentsAgain()
    let isSettled = Result { try !isLastOfSeries || source.isSettled() }
    let readable = Result { try source.latestCommit() }
    // The log is not created in a place that cannot be read.
    let replacement = Result {
      if case .success(_?) = readable { try joinAgain(makesLog: makesLog) } else { nil as Replacement? }
    }
    let isReplaced = if case .success(_?) = replacement { true } else { false }
    // Joining the log may have taken long, so the number is read again.
    let latest = isReplaced ? Result { try source.latestCommit() } : readable
    #if !canImport(Darwin)
      // Delivers the events for the files of commits up to `latest`, which would otherwise be attributed to another program
      // later.
      if source.entryDirectory != nil { FileWatch.deliverPending() }
    #endif
    let change = state.withLock { state -> StorageChange? in
      if case .success(let replacement?) = replacement { replace(replacement, &state) }
      if state.isStopped { return nil }
      // Determined first, since a check that fails may have cleared the files.
      let hasFiles = !state.files.isEmpty
      var change: StorageChange?
      do {
        // Throws before `changesByOthers` clears `lastCheckFailed`: otherwise each failed check would report everything.
        _ = try replacement.get()
        let hasSettled = try isSettled.get()
        change = try changesByOthers(&state, upTo: latest.get(), isConclusive: isLastOfSeries && hasSettled)
        if !hasSettled, state.delays.isEmpty { state.delays = Self.delays.suffix(1) }
      } catch {
        // Regardless of the cause, this reports everything once, and again for each new commit and changed file: subscribers find
        // the changes when they reload everything.
        if !state.lastCheckFailed || state.mayHaveMissedChanges || hasFiles { change = .everything }
        (state.lastCheckFailed, state.mayHaveMissedChanges) = (true, false)
        (state.files, state.foreignFiles) = ([], [])
        if case .success(let number?) = latest, number > state.known {
          state.known = number
          change = .everything
        }
      }
      // Schedules another check, since no event may follow for a long time.
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
  /// While the system refuses to watch the files, checks at regular intervals detect commits by their number. The subscribers
  /// receive `everything` when that begins and when it ends, and not with each check.
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

  /// Joins the log that is now at the path, if it is another one. Takes no lock of the state, which commits of this process need,
  /// since joining may wait long for another process.
  ///
  /// A log that has been removed is only created again for a new subscriber, as the whole place may be about to be removed.
  /// Without a log, commits are detected by the files that they write, and each may have changed everything.
  private func joinAgain(makesLog: Bool) throws -> Replacement? {
    let known = state.withLock { $0.log }
    guard try !known.isInPlace && (makesLog || FileIdentity(path: known.path) != nil) else { return nil }
    // The closure ends the wait when ``stop()`` is called.
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

  /// Also called if ``stop()`` has been called in the meantime, which then leaves the new log.
  private func replace(_ replacement: Replacement, _ state: inout State) {
    // The watch is replaced before the removed file is closed, which the old watch would report as another interruption.
    if !state.isStopped { state.logWatch = replacement.watch }
    state.log.close()
    state.log = replacement.log
    state.missedCommits = replacement.missedCommits
    state.position = replacement.end
    state.mayHaveMissedChanges = true
  }

  /// The changes by others since the last check.
  ///
  /// - Parameter isConclusive: Whether no commit is in progress any more, so that a commit that is still unconfirmed was not made
  ///   by the writer that announced it.
  private func changesByOthers(
    _ state: inout State, upTo latest: UInt64?, isConclusive: Bool
  ) throws -> StorageChange? {
    // This process may have committed in the meantime.
    let latest = if let latest, latest < state.known { try source.latestCommit() } else { latest }
    guard let latest else {
      if state.delays.isEmpty { state.delays = Self.delays[...] }
      return nil
    }
    // Without the repair, a truncated log would remain unusable.
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
    // Files without a corresponding commit have been changed by another program, and so have files that were created or written
    // in place.
    switch logged {
    case .everything?: break
    case .keys(let keys)?: foreign.formUnion(files.subtracting(keys))
    case nil: foreign.formUnion(files)
    }
    return foreign.isEmpty ? change : .keys(foreign).union(change)
  }

  /// The changes of the commits by others up to `latest`, and of all commits that have been logged since the last check. Nil if
  /// the log lacks a commit, or if another program may have made a commit with the number of an announced one.
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
    // Checks again until the commit is confirmed, or until it is known that it will not be.
    if isUnconfirmed, state.timer == nil, state.delays.isEmpty { state.delays = Self.delays[...] }
    return (change, logged)
  }

  /// Whether the commit with the record's number may have been made by a program that does not use the log, after the writer of
  /// the record died before its own commit. The record is unconfirmed then.
  private func mayBeAnothers(
    _ record: ChangeLog.Record, before later: some Sequence<ChangeLog.Record>
  ) -> Bool {
    // If entries are files, only engines count commits.
    guard source.entryDirectory == nil, !record.isConfirmed, record.writer != writer else { return false }
    if case .everything = record.change { return false }
    return !later.contains { $0.commit == record.commit }
  }
}
