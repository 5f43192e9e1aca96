import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension DiskStorageEngine: BackupEngine {
  /// Copies file by file, twice: first while others write, then, with the lock, the files that they have
  /// changed in the meantime.
  ///
  /// Reads do not wait for it. Writes, of this process and of others, wait for the second pass only, which
  /// checks each entry and copies those that have changed since the first. The keys and one value are in
  /// memory. Files are not linked: if another program changed one in place, the copy would change as well.
  ///
  /// Throws as `BackupEngine.backUp(to:)`.
  public func backUp(to directory: FileManager.Directory) async throws {
    let connection = try connection
    try await gate.whileOpen {
      try await BackupDirectory.make(at: directory) { unfinished in
        let copy = try await DedicatedThread.runOnNewThread { flag in
          let copy = DiskCopy(
            of: connection,
            to: try DiskConnection(directory: unfinished.path, durability: .process, permissions: .owner))
          try copy.bringUpToDate(flag)
          return copy
        }
        defer { copy.release() }
        try await thread.runCancellably { flag in
          try connection.withLock {
            try copy.bringUpToDate(flag)
            try copy.takeOverState()
          }
        }
        try await DedicatedThread.runOnNewThread { _ in try copy.synchronize() }
      }
    }
  }
}

extension DiskStorageEngine: SnapshotStreamingEngine {
  /// Reads the entries into a temporary file, in two passes like a backup, so that no other call waits for the work of `body`.
  package func forEachEntry(_ body: @escaping @Sendable (StorageEntry) throws -> Void) async throws {
    let connection = try connection
    try await gate.whileOpen {
      let spool = try await DedicatedThread.runOnNewThread { flag in
        let spool = try DiskSpool(of: connection)
        try spool.bringUpToDate(flag)
        return spool
      }
      try await thread.runCancellably { flag in
        try connection.withLock { try spool.bringUpToDate(flag) }
      }
      try await DedicatedThread.runOnNewThread { flag in try spool.forEachEntry(flag, body) }
    }
  }
}
