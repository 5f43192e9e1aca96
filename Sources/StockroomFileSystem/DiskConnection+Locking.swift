import StockroomCore
import Synchronization

// Locking and optimistic reads.

extension DiskConnection {
  /// Brings to the disk what has been changed already. If that fails, this engine does nothing more.
  ///
  /// - Throws: ``AfterCommitError``, so that what has been changed is not tried again.
  func failingPermanently(_ work: () throws -> Void) throws {
    do {
      try work()
    } catch {
      fail(with: error)
      throw AfterCommitError(error)
    }
  }

  /// Lets this engine do nothing more. Reads without the lock are no more possible then.
  func fail(with error: any Error) {
    failure.withLock { $0 = error }
    isRecovered.store(false, ordering: .releasing)
  }

  /// Does the work while no other engine writes, here or in another process, and after completing the batch of
  /// one that died. Waits for the lock, so only for the engine's own thread.
  ///
  /// - Throws: `StorageError` with code `locked` if another process keeps the lock for too long, `io` if the path leads
  ///   to another place by now or does so when the work is done.
  func withLock<Result>(_ work: () throws -> Result) throws -> Result {
    if let failure = failure.withLock({ $0 }) {
      throw StorageError(
        .io, "A change in \(entries.root.path) could not be written to the disk; open the directory again.",
        underlying: failure)
    }
    try lock()
    defer { state.unlock() }
    try checkPlace()
    try recover()
    let result = try work()
    // It may have been a commit.
    try AfterCommitError.lookingAgain { try checkPlace() }
    return result
  }

  /// Waits for the lock, and for its turn first (``SharedState/lock(turn:timeout:)``).
  ///
  /// For a moment after one turn it does without the next, if the lock is free. That saves a write that follows another two system calls, and
  /// whoever waits is overtaken no longer than that.
  private func lock() throws {
    let isOnTurn = endOfTurn.withLock { ContinuousClock.now < $0 }
    if isOnTurn, try state.tryLock() { return }
    try state.lock(turn: journal.file, timeout: lockTimeout)
    endOfTurn.withLock { $0 = ContinuousClock.now + Self.turn }
  }

  private static let turn = Duration.milliseconds(2)

  /// What must not change during a read for it to be right.
  enum View: Sendable {
    /// Whole batches.
    case batches
    /// Every single write: for listings, in which a file that is replaced meanwhile may be missing.
    case everything
  }

  /// A writer changed what an optimistic read depends on. Never leaves the engine.
  ///
  /// The versions in ``SharedState`` are a seqlock: odd while a writer is at work, and another number afterwards.
  struct SeqlockConflict: Error {}

  /// Does the work, which must be quick, without the lock: without asking for the version first if it has not changed
  /// since another read. Never shows half a batch.
  ///
  /// - Throws: ``SeqlockConflict`` if a batch was being written.
  func optimisticRead<Result>(quickly work: () throws -> Result) throws -> Result {
    let known = lastBatchVersion.load(ordering: .acquiring)
    if known & 1 == 0, isRecovered.load(ordering: .acquiring) {
      let result = Swift.Result { try work() }
      if try state.batchVersion() == known {
        try checkPlace()
        return try result.get()
      }
    }
    return try optimisticRead(.batches) { version in
      let result = try work()
      lastBatchVersion.store(version, ordering: .releasing)
      return result
    }
  }

  /// Does the work without the lock.
  ///
  /// - Parameter work: Gets the version that everything it reads is of.
  /// - Throws: ``SeqlockConflict`` if something it depends on was being written. Never while the caller has the lock.
  func optimisticRead<Result>(_ view: View, _ work: (_ version: UInt64) throws -> Result) throws -> Result {
    guard isRecovered.load(ordering: .acquiring) else { throw SeqlockConflict() }
    let before = try version(view)
    guard before & 1 == 0 else { throw SeqlockConflict() }
    let result = Swift.Result { try work(before) }
    guard try version(view) == before else { throw SeqlockConflict() }
    // Nothing is in a directory that has been removed. That must not pass for being absent (rule R4).
    try checkPlace()
    return try result.get()
  }

  private func version(_ view: View) throws -> UInt64 {
    switch view {
    case .batches: return try state.batchVersion()
    case .everything:
      let contents = try state.read()
      return contents.isStable ? contents.version : 1
    }
  }
}
