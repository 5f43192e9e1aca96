import StockroomCore

/// An open database: one connection that writes, on a thread of its own, and a pool of those that read.
///
/// With a write-ahead log readers never wait for the writer, nor it for them: https://sqlite.org/wal.html
final class SQLiteDatabase: Sendable {
  private let gate: Gate
  private let thread = OwnThread()
  private let writer: SQLiteConnection
  private let committer: GroupCommitter<[StorageOperation]>
  private let readers: SQLiteReaders

  /// Opens the database at a path, or makes it.
  init(path: String, durability: Durability) throws {
    let writer = try SQLiteFile(path: path).connect(durability: durability)
    self.writer = writer
    // Touched by the engine's own thread only.
    let ledger = Guarded<SQLiteLedger?>(nil)
    gate = Gate(path: path)
    committer = GroupCommitter(on: thread) { group in
      let batch = SortedBatch(joining: group)
      try ledger.withLock { ledger in
        // Forgotten if the transaction fails, since it is not known then what was kept.
        let known = ledger.take()
        var left = try writer.transaction(.beginWriting) {
          var transaction = try SQLiteWriter(on: writer, knowing: known)
          return try transaction.perform(batch)
        }
        // The transaction has been committed, and an error here must not say otherwise.
        guard let version = try? writer.dataVersion() else { return }
        left.version = version
        ledger = left
      }
    }
    readers = SQLiteReaders(path: path)
  }

  deinit {
    thread.stop()
    release()
  }

  /// Lets `body` read, on this thread, which does not wait for anybody.
  ///
  /// Now and then another process makes readers wait: it recovers the log after a crash, or closes the database as
  /// the last one. Then the engine's own thread does the waiting, and the reading.
  func read<Result: Sendable>(
    _ body: @escaping @Sendable (SQLiteConnection) throws -> Result
  ) async throws -> Result {
    try gate.enter()
    defer { gate.leave() }
    do {
      return try readers.withReader(body)
    } catch let error as StorageError where error.code == .locked {
      return try await thread.run { [writer] in try body(writer) }
    }
  }

  /// Returns once the operations are committed, together with those of other tasks.
  func commit(_ operations: [StorageOperation]) async throws {
    try gate.enter()
    defer { gate.leave() }
    guard !operations.isEmpty else { return }
    try await committer.submit(operations)
  }

  func close() async throws {
    try await gate.close {
      try await thread.run { [self] in release() }
      thread.stop()
    }
  }

  private func release() {
    readers.drain()
    // Last, since the last connection to close takes the log away.
    writer.close()
  }
}
