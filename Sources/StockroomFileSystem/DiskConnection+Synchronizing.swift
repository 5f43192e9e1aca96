import StockroomCore
import Synchronization

extension DiskConnection {
  /// Puts everything on the file system on the disk.
  func synchronizeFileSystem() throws {
    let error = SystemCalls.synchronizeFileSystem(staging.directory.number)
    guard error == 0 else { throw StorageError.posix(error, "Writing \(entries.path) to the disk failed") }
  }

  /// Puts on the disk that the last batch has ended, unless that is known to be there. Otherwise the batch may be in the journal again
  /// after the machine has died, and if it has to be undone then, so are single writes that came after it.
  func synchronizeEndOfBatches() throws {
    let version = try state.batchVersion()
    if syncedBatchVersion.load(ordering: .relaxed) == version { return }
    try journal.file.synchronize()
    syncedBatchVersion.store(version, ordering: .relaxed)
  }

  /// Puts the names of these entries on the disk, or that they are gone.
  ///
  /// Where a file system can be synced as a whole, throws only if a sync fails.
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
  /// Syncs those directories below the root that the file's path goes through, as far as they exist.
  ///
  /// - Returns: False if one of them cannot be opened, for want of a descriptor or of a permission, so that the whole file
  ///   system has to be synced instead.
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
