@preconcurrency import Dispatch

/// Detects commits by others to a place, as long as there are subscribers in this process.
///
/// Notifications of the file system only trigger a check, and the number of the latest commit shows whether
/// something has changed. The ``ChangeLog`` contains the changes; a commit that is not logged may have
/// changed everything.
final class ChangeWatcher: Sendable {
  struct State {
    var log: ChangeLog
    /// The last value of ``ChangeLog/missedCommits()``.
    var missedCommits: UInt64
    /// The number of the last commit up to which the subscribers have received all changes.
    var known: UInt64 = 0
    /// The position in the log from which the next check reads: after the record of that commit or, if an earlier record is still
    /// unconfirmed, so that another program may have made the commit with its number, at that record.
    var position: UInt64 = 0
    /// The position in the log up to which everything has been reported.
    var reported: UInt64 = 0
    /// Whether changes may have been missed, so that the next check reports everything.
    var mayHaveMissedChanges = false
    /// Whether the last check has failed. The subscribers have then received everything, and receive everything again once a
    /// check succeeds.
    var lastCheckFailed = false
    /// Whether the system has refused to watch the files that commits write.
    var isUnwatched = false
    var isStopped = false
    /// The keys of the entries whose files any program has changed since the last check.
    var files: Set<CacheKey> = []
    /// The keys among these whose files have been created or written in place, which no commit does: it moves complete files into
    /// the directory.
    var foreignFiles: Set<CacheKey> = []
    /// The changes of the commits in the log that cannot be read yet.
    var pending: StorageChange?
    /// Watches the log.
    var logWatch: FileWatch?
    /// Watches on the files that commits write. Empty while checks are scheduled, since another write then need not trigger one.
    var contents: [FileWatch] = []
    /// A watch on the directory of entries.
    var names: FileWatch?
    /// The delays of the remaining scheduled checks.
    var delays = ArraySlice<DispatchTimeInterval>()
    var timer: (any DispatchSourceTimer)?
  }

  let source: any ChangeSource
  let model: String
  let writer: UInt64
  let hub: ChangeHub
  private let queue = DispatchQueue(label: "Stockroom.ChangeWatcher")
  let state: MutexProtected<State>

  /// The delays of the checks after a file was written, since a commit can often be read only some time later.
  static let delays: [DispatchTimeInterval] = [
    .milliseconds(1), .milliseconds(4), .milliseconds(16), .milliseconds(64),
  ]
  /// The delay of the next check after a check has failed, or the system has refused to watch a file.
  static let delayOfRetry = DispatchTimeInterval.seconds(1)

  /// - Throws: ``StorageError``, after closing the source.
  init(
    _ source: any ChangeSource, log: ChangeLog, like model: String, writer: UInt64,
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
    self.model = model
    self.writer = writer
    self.hub = hub
    state = MutexProtected(State(log: log, missedCommits: missedCommits))
  }

  /// Notifies writers of a new subscriber, so that they report commits that they have not acknowledged yet.
  ///
  /// Call it once all later commits are reported to the subscriber: a writer that reads the new number before its commit relies
  /// on its record in the log.
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
      if known == nil { checkLater() }
    }
  }

  func watchLog(_ log: ChangeLog) throws -> FileWatch {
    try FileWatch(path: log.path, .attributes) { [weak self] event in
      if case .interruption = event { self?.noteInterruption() }
      self?.checkNow()
    }
  }

  func watchContents(_ log: ChangeLog) throws -> [FileWatch] {
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
    // The watches are released outside the lock.
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

  /// A file that commits write was written. It is not watched again before the last of the scheduled checks.
  private func noteContents() {
    let watches = state.withLock { exchange(&$0.contents, with: []) }
    checkLater()
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
    checkLater()
  }

  /// Notifies the subscribers of all earlier commits, before a new one is added. Creates the log if it has been removed: without
  /// it, writers would not detect the new one.
  func catchUp() { queue.sync { check(makesLog: true) } }

  private func checkNow() {
    queue.async { [weak self] in self?.check() }
  }

  /// Checks several times, at growing intervals.
  private func checkLater() {
    state.withLock { state in
      if state.isStopped { return }
      state.delays = Self.delays[...]
      setTimer(&state)
    }
  }

  func setTimer(_ state: inout State) {
    guard state.timer == nil, let delay = state.delays.popFirst() else { return }
    let timer = DispatchSource.makeTimerSource(queue: queue)
    timer.setEventHandler { [weak self] in
      guard let self else { return }
      let isLast = self.state.withLock { state in
        state.timer.take()?.cancel()
        return state.delays.isEmpty
      }
      check(isLastOfSeries: isLast)
    }
    timer.schedule(deadline: .now() + delay, leeway: .microseconds(100))
    timer.activate()
    state.timer = timer
  }

  // MARK: Commits of this process

  /// Records a commit of this process, so that no check is necessary to detect it.
  ///
  /// - Returns: Whether subscribers must be woken: those of other feeds, or this watcher, if it must first determine what was
  ///   committed before.
  func noteOwnCommit(_ entry: ChangeFeed.Entry) -> Bool {
    // If entries are files, checks compare the changed files with the log.
    guard source.entryDirectory == nil else { return true }
    return state.withLock { state in
      guard !state.isStopped, !state.mayHaveMissedChanges, !state.lastCheckFailed,
        state.log.isSameFile(as: entry.log),
        state.position == entry.position.lowerBound, state.known &+ 1 == entry.number
      else { return true }
      state.position = entry.position.upperBound
      state.reported = state.position
      state.known = entry.number
      return state.log.hasOtherSubscribers
    }
  }
}
