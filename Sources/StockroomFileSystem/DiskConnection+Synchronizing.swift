import StockroomCore
import Synchronization

extension DiskConnection {
  /// Syncs everything on the file system.
  func synchronizeFileSystem() throws {
    let error = SystemCalls.synchronizeFileSystem(staging.directory.number)
    guard error == 0 else { throw StorageError.posix(error, "Writing \(entries.path) to the disk failed") }
  }

  /// Syncs the end of the last batch, unless it is known to be on the disk. Otherwise, the batch may be in
  /// the journal again after a crash of the machine, and if it must then be undone, single writes that came
  /// after it are undone, too. Needs the lock, and that no batch is pending.
  func synchronizeEndOfBatches() throws {
    let version = try state.batchVersion()
    if syncedBatchVersion.load(ordering: .relaxed) == version { return }
    // The end is written again, since after a failed sync another one may succeed without writing the same data.
    try journal.endSynchronously()
    syncedBatchVersion.store(version, ordering: .relaxed)
  }

  /// Call it if the end of a failed transaction has been written to the journal, but may not be on the disk. After a crash of the
  /// machine, the transaction could be completed over later writes. This changes the version of batches, so that every engine
  /// writes and syncs the end again before its next write.
  func noteUnsyncedEnd() {
    do {
      try setUnstable(true)
      try setUnstable(false)
    } catch {
      fail(with: error)
    }
  }

  /// Syncs the names of these entries, or their removal.
  ///
  /// If the file system can be synced as a whole, throws only if a sync fails.
  func synchronizeDirectories(of names: [FileName]) throws {
    let deep = names.filter { $0.directoryCount > 0 }
    if deep.count > Self.mostSingleSyncs, SystemCalls.canSynchronizeFileSystem {
      return try synchronizeFileSystem()
    }
    for directory in [entries, sidecars].compactMap({ $0 }) {
      try directory.root.synchronizeNames()
      for name in deep where try !directory.synchronizeDirectories(of: name) {
        return try synchronizeFileSystem()
      }
    }
  }
}

extension EntryDirectory {
  /// Syncs the existing directories below the root on the path of the file.
  ///
  /// - Returns: False if one of them cannot be opened, for lack of a descriptor or of a permission, so that
  ///   the whole file system must be synced instead.
  fileprivate func synchronizeDirectories(of name: FileName) throws -> Bool {
    var parent = root
    for index in 0..<name.directoryCount {
      let opened: FileDescriptor?
      do {
        opened = try name.withComponent(index, parent.openDirectory)
      } catch  where SystemCalls.canSynchronizeFileSystem {
        return false
      }
      guard let next = opened else { return true }
      try next.synchronizeNames()
      parent = next
    }
    return true
  }
}
