import StockroomCLMDB
import StockroomCore

extension LMDBEnvironment {
  /// A stream of the changes from now on. Call it on the thread that writes.
  func subscribe(
    of owner: ObjectIdentifier, without origin: ChangeOrigin?, on thread: DedicatedThread
  ) throws -> StorageChanges {
    try feed.subscribe(without: origin, of: owner) {
      LMDBChangeSource(self, thread)
    } afterCommits: {
      try waitForCommits()
    }
  }

  /// Returns once the write transactions of other processes that are in progress have ended.
  private func waitForCommits() throws {
    if case .failure = handle { try repair() }
    do {
      var repairs = 0
      while true {
        do {
          return mdb_txn_abort(try handle.get().beginWriting())
        } catch let error as LMDBError where Self.isRepairable(error) && repairs < 3 {
          // Another process may have made the database larger than the map, which no read has detected yet.
          repairs += 1
          try repair()
        }
      }
    } catch {
      throw StorageError.fromTransaction(
        error, "Waiting for the writers of the LMDB database in \(directory) failed")
    }
  }
}

/// Detects the changes of other processes: `data.mdb` is written, and LMDB counts the transactions.
private final class LMDBChangeSource: ChangeSource {
  private struct Repair {
    var isRequested = false
    var failure: (any Error)?
    var isClosed = false
  }

  private let environment: LMDBEnvironment
  /// The thread that writes.
  private let thread: DedicatedThread
  private let repair = MutexProtected(Repair())

  init(_ environment: LMDBEnvironment, _ thread: DedicatedThread) {
    (self.environment, self.thread) = (environment, thread)
  }

  var writtenFiles: [String] { [environment.file.path] }

  func latestCommit() throws -> UInt64? {
    if let failure = repair.withLock({ $0.failure.take() }) { throw failure }
    switch try environment.read({ $0.number }) {
    case .value(let number): return UInt64(clamping: number)
    case .paused, .isStale: return nil
    case .needsRepair:
      // For example, another process has made the database larger than the map. Without this request, nothing might
      // repair the environment for a long time.
      try requestRepair()
      return nil
    }
  }

  /// Makes the thread that writes repair the environment. Does not wait, as the thread may be waiting for
  /// this source to be closed.
  private func requestRepair() throws {
    let isFirst = repair.withLock { repair in
      defer { repair.isRequested = true }
      return !repair.isRequested
    }
    guard isFirst else { return }
    try thread.enqueue { [self] in
      repair.withLock { repair in
        repair.isRequested = false
        // The environment is closed only after its sources.
        if repair.isClosed { return }
        do { try environment.repair() } catch { repair.failure = error }
      }
    }
  }

  func close() { repair.withLock { $0.isClosed = true } }
}
