import StockroomCLMDB
import StockroomCore

extension LMDBEnvironment {
  /// A stream of the changes from now on. On the thread that writes.
  func subscribe(of owner: ObjectIdentifier, without origin: ChangeOrigin?) throws -> StorageChanges {
    try feed.subscribe(without: origin, of: owner) {
      LMDBChangeSource(self)
    } afterCommits: {
      try waitForCommits()
    }
  }

  /// Returns once the write transactions of other processes that are under way have ended.
  private func waitForCommits() throws {
    if case .failure = handle { try repair() }
    do {
      mdb_txn_abort(try handle.get().beginWriting())
    } catch {
      throw StorageError.fromTransaction(
        error, "Waiting for the writers of the LMDB database in \(directory) failed")
    }
  }
}

/// How the changes of other processes are noticed: `data.mdb` is written, and LMDB counts the transactions.
private final class LMDBChangeSource: ChangeSource {
  private let environment: LMDBEnvironment

  init(_ environment: LMDBEnvironment) { self.environment = environment }

  var writtenFiles: [String] { [environment.file.path] }

  func latestCommit() throws -> UInt64? {
    switch try environment.read({ $0.number }) {
    case .value(let number): UInt64(clamping: number)
    // The next call can tell.
    case .paused, .needsRepair, .isStale: nil
    }
  }

  func close() {}
}
