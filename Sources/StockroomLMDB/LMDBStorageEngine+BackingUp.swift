import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension LMDBStorageEngine: BackupEngine {
  /// Writes the entries to a new database, in the order of keys, which fills its pages and leaves none free.
  ///
  /// Reads one snapshot on a separate thread: neither reads nor writes wait for it. Pages that are replaced in the
  /// meantime are reused only after the backup, so the database may grow by as much as is written. `mdb_env_copyfd2` is
  /// not used: it would need the map in its place for the whole time, and so block a write that needs a larger map, and
  /// readers with it.
  ///
  /// - Throws: as `BackupEngine.backUp(to:)` does.
  public func backUp(to directory: FileManager.Directory) async throws {
    try await BackupDirectory.make(at: directory) { unfinished in
      let source = shared.environment.directory
      try await readApart { read, flag in
        try LMDBHandle.makeCopy(of: read.snapshot, from: source, in: unfinished.path, flag)
      }
    }
  }
}

extension LMDBStorageEngine: SnapshotStreamingEngine {
  package func forEachEntry(_ body: @escaping @Sendable (StorageEntry) throws -> Void) async throws {
    try await readApart { read, flag in
      var keys: [(sequence: UInt64, key: CacheKey)] = []
      try read.snapshot.forEachRecord { key, value in
        try flag.check()
        keys.append((try LMDBEntry(value).header().sequence, try CacheKey(stored: key)))
      }
      for key in keys.keysByCreation() {
        try flag.check()
        guard let entry = try read.snapshot.entry(of: key) else { throw LMDBError.corruptedEntry }
        try body(StorageEntry(key: key, data: entry.data, header: entry.header()))
      }
    }
  }

  /// Calls `work` with one snapshot, which it may read for any length of time, on a separate thread.
  private func readApart(
    _ work: @escaping @Sendable (LMDBLongRead, CancellationFlag) throws -> Void
  ) async throws {
    try await gate.whileOpen {
      try await shared.readLong { read in
        try await DedicatedThread.runOnNewThread { flag in try work(read, flag) }
      }
    }
  }
}

extension LMDBSnapshot {
  /// Calls `body` with every key and its record, in the order of keys.
  func forEachRecord(
    _ body: (_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) throws -> Void
  ) throws {
    var cursor = try LMDBCursor(tree, from: UnsafeRawBufferPointer(start: nil, count: 0))
    while let (key, value) = try cursor.next() { try body(key, value) }
  }
}
