@preconcurrency import Dispatch

/// Notices what others commit to a place, as long as there are subscribers in this process.
///
/// Notifications of the file system only say when to look, and the number of the latest commit says whether
/// something has changed. The ``ChangeLog`` says what; a commit that is not in it has changed everything, for all that is known.
final class ChangeWatcher: Sendable {
  private struct State {
    var log: ChangeLog
    /// What ``ChangeLog/missedCommits()`` was.
    var missedCommits: UInt64
    /// Up to which commit the subscribers know everything.
    var known: UInt64 = 0
    /// Where in the log the commits after that one begin, or the first one before it of which it is not known whether the announced commit
    /// was made, or another one in its place.
    var position: UInt64 = 0
    /// Up to where in the log everything has been reported.
    var reported: UInt64 = 0
    /// Whether something has been missed.
    var mayHaveMissedChanges = false
    var isStopped = false
    /// The files of entries that have been changed by somebody, since the last look.
    var files: Set<CacheKey> = []
    /// Those of them that have been made or written where they are, which no commit does: it moves files in that are complete.
    var foreignFiles: Set<CacheKey> = []
    /// What the commits in the log change that cannot be read yet.
    var pending: StorageChange?
    /// Watches the log.
    var logWatch: FileWatch?
    /// Watch the files that commits write. None while looks are to come: who writes on wakes nobody.
    var contents: [FileWatch] = []
    /// Watches the directory of entries.
    var names: FileWatch?
    /// How many more looks there will be if nothing else happens.
    var delays = ArraySlice<DispatchTimeInterval>()
    var timer: (any DispatchSourceTimer)?
  }

  private let source: any ChangeSource
  private let permissions: FilePermissions
  private let writer: UInt64
  private let hub: ChangeHub
  private let queue = DispatchQueue(label: "Stockroom.ChangeWatcher")
  private let state: MutexProtected<State>

  /// When to look after a file was written: a commit can often be read only somewhat later.
  private static let delays: [DispatchTimeInterval] = [
    .milliseconds(1), .milliseconds(4), .milliseconds(16), .milliseconds(64),
  ]
  /// When to look again after the system has not let a file be watched.
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

  /// Lets writers know that somebody subscribes, so that they report what they have committed and not acknowledged. Before it is known from
  /// where on this watcher reports, and after it is known what is reported so.
  func noteSubscription() throws { try state.withLock { try $0.log.noteSubscription() } }

  /// Watches from now on. No commit is under way.
  func start() throws {
    // A look before it is known where to begin would find what was there before.
    try queue.sync {
      let logWatch = try watchLog(state.withLock { $0.log })
      let contents = try watchContents()
      let names = try watchNames()
      let known = try source.latestCommit()
      #if !canImport(Darwin)
        // Another watch of this process may share the directory, of which the system has not told everything yet.
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

  private func watchContents() throws -> [FileWatch] {
    try source.writtenFiles.map { path in
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

  /// Releases everything. Waits for a look that is under way.
  func stop() {
    // Released outside of the lock.
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

  // MARK: When to look

  private func noteInterruption() { state.withLock { $0.mayHaveMissedChanges = true } }

  /// A file that commits write was written, and will not be watched again before the last look.
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

  /// Tells the subscribers of everything that has been committed before.
  func catchUp() { queue.sync { look() } }

  private func lookNow() {
    queue.async { [weak self] in self?.look() }
  }

  /// Looks a few times, at growing intervals.
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

  /// Takes note of a commit of this process, which need not be looked for then.
  ///
  /// - Returns: Whether subscribers have to be woken up for it: others, or this one, which has to find out first what was before.
  func noteOwnCommit(_ entry: ChangeFeed.Entry) -> Bool {
    // The files of a directory of entries are compared with what is found in the log.
    guard source.entryDirectory == nil else { return true }
    return state.withLock { state in
      guard !state.isStopped, !state.mayHaveMissedChanges, state.log.isSameFile(as: entry.log),
        state.position == entry.position.lowerBound, state.known &+ 1 == entry.number
      else { return true }
      state.position = entry.position.upperBound
      state.reported = state.position
      state.known = entry.number
      return state.log.hasOtherSubscribers
    }
  }

  // MARK: Looking, on the queue

  /// - Parameter isLastOfSeries: Whether this is the last look after a file was written, so that no commit may be under way. To know
  ///   that takes the lock of the place for a moment, which no other look does.
  private func look(isLastOfSeries: Bool = false) {
    if state.withLock({ $0.isStopped }) { return }
    // In this order: what is written from here on is noticed, and a commit that has ended before can be read.
    let isWatched = Result { try watchContentsAgain() }
    let isSettled = Result { try !isLastOfSeries || source.isSettled() }
    let latest = Result { try source.latestCommit() }
    #if !canImport(Darwin)
      // The files of commits up to that one are known then, and are not taken for those of another program later.
      if source.entryDirectory != nil { FileWatch.deliverPending() }
    #endif
    let change = state.withLock { state -> StorageChange? in
      if state.isStopped { return nil }
      let wasBlind = state.mayHaveMissedChanges
      var change: StorageChange?
      do {
        let isConclusive = if case .success(true) = isSettled { isLastOfSeries } else { false }
        change = try look(&state, upTo: latest.get(), isConclusive: isConclusive)
        try isWatched.get()
        if try !isSettled.get(), state.delays.isEmpty { state.delays = Self.delays.suffix(1) }
      } catch {
        // Whatever has happened there: subscribers that look at everything find out, after each commit that is seen.
        state.mayHaveMissedChanges = true
        if !wasBlind { change = .everything }
        if case .success(let number?) = latest, number > state.known {
          state.known = number
          change = .everything
        }
        if case .failure = isWatched, state.delays.isEmpty { state.delays = [Self.delayOfRetry] }
      }
      setTimer(&state)
      return change
    }
    if let change { hub.send(change) }
  }

  /// Watches the files that commits write again, if no more looks are to come.
  private func watchContentsAgain() throws {
    try state.withLock { state in
      if state.isStopped || state.timer != nil || !state.delays.isEmpty || !state.contents.isEmpty { return }
      state.contents = try watchContents()
    }
  }

  /// What others have changed since the last look.
  ///
  /// - Parameter isConclusive: Whether a commit that has not been confirmed by now was not made by who announced it.
  private func look(
    _ state: inout State, upTo latest: UInt64?, isConclusive: Bool
  ) throws -> StorageChange? {
    // This process may have committed meanwhile.
    let latest = if let latest, latest < state.known { try source.latestCommit() } else { latest }
    guard let latest else {
      if state.delays.isEmpty { state.delays = Self.delays[...] }
      return nil
    }
    // One that has been removed is not made again, as the whole place may be on its way out. Without it, a commit has changed
    // everything, for all that is known. One that has been cut off would stay of no use.
    if try state.log.repairIfTruncated() { state.mayHaveMissedChanges = true }
    if try !state.log.isInPlace && FileIdentity(path: state.log.path) != nil {
      state.mayHaveMissedChanges = true
      let log = try ChangeLog.join(atPath: state.log.path, permissions)
      let logWatch = try watchLog(log)
      state.missedCommits = try log.missedCommits()
      try log.noteSubscription()
      state.log.close()
      state.log = log
      state.position = try log.end()
      state.logWatch = logWatch
    }
    let missedCommits = try state.log.missedCommits()
    if missedCommits != state.missedCommits {
      state.missedCommits = missedCommits
      state.mayHaveMissedChanges = true
    }
    let files = exchange(&state.files, with: [])
    var foreign = exchange(&state.foreignFiles, with: [])
    guard !state.mayHaveMissedChanges,
      let (change, logged) = try readLog(&state, upTo: latest, isConclusive: isConclusive)
    else {
      state.known = latest
      state.position = try state.log.end()
      state.reported = state.position
      state.pending = nil
      state.mayHaveMissedChanges = false
      return .everything
    }
    // Files that no commit has to do with have been changed by another program, and so have those that were not moved.
    switch logged {
    case .everything?: break
    case .keys(let keys)?: foreign.formUnion(files.subtracting(keys))
    case nil: foreign.formUnion(files)
    }
    return foreign.isEmpty ? change : .keys(foreign).union(change)
  }

  /// What the commits up to the latest have changed that were made by others; and what all have that are or were in the log.
  /// Nil if something is missing, or if a commit was announced and another program has made one in its place.
  private func readLog(
    _ state: inout State, upTo latest: UInt64, isConclusive: Bool
  ) throws -> (change: StorageChange?, logged: StorageChange?)? {
    guard latest >= state.known, let records = try state.log.records(from: state.position) else { return nil }
    let reported = state.reported
    // Wrapping: a corrupted file may say any number.
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
      // Of a commit that was tried several times there are several records.
      if record.commit == missing { missing &+= 1 } else if record.commit > missing { return nil }
      if record.writer != writer { change = record.change.union(change) }
    }
    guard missing > latest else { return nil }
    state.known = latest
    // Until it is confirmed, or known that it will not be.
    if isUnconfirmed, state.timer == nil, state.delays.isEmpty { state.delays = Self.delays[...] }
    return (change, logged)
  }

  /// Whether the commit with the record's number may be that of a program that announces nothing, as the writer of the record has died
  /// before it: nobody has said yet that it was made.
  private func mayBeAnothers(
    _ record: ChangeLog.Record, before later: some Sequence<ChangeLog.Record>
  ) -> Bool {
    // Only engines count commits where entries are files.
    guard source.entryDirectory == nil, !record.isConfirmed, record.writer != writer else { return false }
    if case .everything = record.change { return false }
    return !later.contains { $0.commit == record.commit }
  }
}
