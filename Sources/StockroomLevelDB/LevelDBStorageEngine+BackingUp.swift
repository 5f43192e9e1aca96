import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension LevelDBStorageEngine: BackupEngine {
  /// Writes the records of one iterator to a new database.
  ///
  /// Runs on a separate thread: neither reads nor writes wait for it, unless a write fails in the meantime. In that
  /// case the database must be reopened, and all calls wait until the backup has ended. Tables that are compacted in
  /// the meantime take space until then. Files are not linked: LevelDB may remove one at any time, and changes its log
  /// and its manifest in place.
  ///
  /// - Throws: as `BackupEngine.backUp(to:)` does.
  public func backUp(to directory: FileManager.Directory) async throws {
    try await BackupDirectory.make(at: directory) { unfinished in
      try await readApart { handle, flag in
        let copy = try LevelDBConnection(directory: unfinished, durability: .full, permissions: .owner)
        defer { copy.close(writingMarker: false) }
        try copy.add(handle.iterator(), flag)
        copy.close(writingMarker: true)
      }
    }
  }
}

extension LevelDBStorageEngine: SnapshotStreamingEngine {
  package func forEachEntry(_ body: @escaping @Sendable (StorageEntry) throws -> Void) async throws {
    try await readApart { handle, flag in
      let snapshot = handle.snapshot()
      var keys: [(sequence: UInt64, key: CacheKey)] = []
      try handle.iterator(in: snapshot).forEachEntry { key, stored in
        try flag.check()
        keys.append(
          (
            try LevelDBEncoding.header(stored, path: handle.path).sequence,
            try LevelDBEncoding.key(key, path: handle.path)
          ))
      }
      for key in keys.keysByCreation() {
        try flag.check()
        let entry = try key.withUTF8 { bytes in
          try handle.read(bytes, in: snapshot) { try handle.wholeEntry(key, $0) }
        }
        guard let entry else {
          throw StorageError(
            .corrupted, "The LevelDB database in \(handle.path) finds no \(key), which it lists.")
        }
        try body(entry)
      }
    }
  }

  /// Calls `work` with the database, which it may read for any length of time, on a separate thread.
  private func readApart(
    _ work: @escaping @Sendable (LevelDBHandle, CancellationFlag) throws -> Void
  ) async throws {
    try await gate.whileOpen {
      try await connection.readLong(on: thread) { handle in
        try await DedicatedThread.runOnNewThread { flag in try work(handle, flag) }
      }
    }
  }
}

extension LevelDBIterator {
  /// Calls `body` with each record that is an entry.
  fileprivate func forEachEntry(
    _ body: (_ key: UnsafeRawBufferPointer, _ stored: UnsafeRawBufferPointer) throws -> Void
  ) throws {
    while let (key, stored) = current, key.first != LevelDBMetadata.firstByte {
      try body(key, stored)
      next()
    }
    try check()
  }
}

extension LevelDBConnection {
  /// The number of bytes that are written in one batch.
  private static let portion = 4 << 20

  /// Writes the entries of another database into this one, which is empty.
  fileprivate func add(_ records: LevelDBIterator, _ flag: CancellationFlag) throws {
    var isAtEnd = false
    while !isAtEnd {
      // The records are copied first, since a batch that fails may be written again.
      var portion: [(key: [UInt8], stored: [UInt8])] = []
      var size = 0
      while size < Self.portion, !isAtEnd {
        try flag.check()
        if let (key, stored) = records.current, key.first != LevelDBMetadata.firstByte {
          portion.append((Array(key), Array(stored)))
          size += key.count + stored.count + 64
          records.next()
        } else {
          isAtEnd = true
        }
      }
      try commit { transaction in
        for (key, stored) in portion {
          try key.withUnsafeBytes { key in try stored.withUnsafeBytes { try transaction.add(key, stored: $0) }
          }
        }
      }
    }
    try records.check()
  }
}
