import StockroomCore
import Synchronization

// Locking and optimistic reads.

extension DiskConnection {
  /// Syncs changes that have already been made. If that fails, this engine does nothing more.
  ///
  /// - Throws: ``AfterCommitError``, so that the changes are not retried.
  func failingPermanently(_ work: () throws -> Void) throws {
    do {
      try work()
    } catch {
      fail(with: error)
      throw AfterCommitError(error)
    }
  }

  /// Prevents this engine from doing anything more. Reads without the lock are then no longer possible.
  func fail(with error: any Error) {
    failure.withLock { $0 = error }
    isRecovered.store(false, ordering: .releasing)
  }

  /// Runs the work while no other engine writes, in this process or another. Before that, it completes or undoes a batch that a
  /// process that died has left. Waits for the lock, so call it only on the engine's own thread.
  ///
  /// - Throws: `StorageError` with code `locked` if another process holds the lock for too long, `io` if the path leads to
  ///   another place, before the work or after it.
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
    // The work may have been a commit.
    try AfterCommitError.retryingOnce { try checkPlace() }
    return result
  }

  /// Waits for the lock, behind the engines that have been waiting for longer (``SharedState/lock(queue:timeout:)``).
  ///
  /// For two milliseconds after it has taken the lock in that way, the engine takes it again without queueing if it is free. That
  /// saves two system calls for a write that follows another one, and a waiting engine is overtaken for no longer than that.
  private func lock() throws {
    let mayRelock = relockDeadline.withLock { ContinuousClock.now < $0 }
    if mayRelock, try state.tryLock() { return }
    try state.lock(queue: journal.file, timeout: lockTimeout)
    relockDeadline.withLock { $0 = ContinuousClock.now + Self.relockTime }
  }

  private static let relockTime = Duration.milliseconds(2)

  /// The state that must not change during a read.
  enum View: Sendable {
    /// Only batches conflict with the read.
    case batches
    /// Every write conflicts with the read. For listings, which may miss a file that is replaced in the meantime.
    case everything
  }

  /// A writer changed a part that an optimistic read depends on. Not thrown to callers of the engine.
  ///
  /// The versions in ``SharedState`` are a seqlock: odd while a writer is active, and greater afterwards than before.
  struct SeqlockConflict: Error {}

  /// Runs the work, which must be quick, without the lock. If the version has not changed since the last read, it is not read
  /// before the work. Never returns half a batch.
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

  /// Runs the work without the lock.
  ///
  /// - Parameter work: Receives the version to which everything it reads belongs.
  /// - Throws: ``SeqlockConflict`` if something it depends on was being written. Never while the caller holds
  ///   the lock.
  func optimisticRead<Result>(_ view: View, _ work: (_ version: UInt64) throws -> Result) throws -> Result {
    guard isRecovered.load(ordering: .acquiring) else { throw SeqlockConflict() }
    let before = try version(view)
    guard before & 1 == 0 else { throw SeqlockConflict() }
    let result = Swift.Result { try work(before) }
    guard try version(view) == before else { throw SeqlockConflict() }
    // A directory that has been removed is empty. That must not count as absent entries (rule R4).
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
