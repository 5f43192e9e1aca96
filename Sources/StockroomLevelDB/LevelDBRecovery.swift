import StockroomCore

/// Checks the files of a database before LevelDB opens them. LevelDB would mistake corruption for a crash, or end the
/// process.
enum LevelDBRecovery {
  /// Costs a check of each table, and reading the manifest and the logs. The logs do not grow with the database; the
  /// manifest has a description of each table.
  ///
  /// - Returns: Whether there are no contents, so that a database may be created.
  /// - Throws: `StorageError` with code `corrupted` if something is missing that existed, or the code of a
  ///   system error.
  static func prepare(_ files: LevelDBFiles, for durability: Durability) throws -> Bool {
    let list = try LevelDBFileList(in: files)
    try list.verifyKinds(in: files)
    func hasEmptyLogs() throws -> Bool { try list.logs.allSatisfy { try files.size(of: $0) ?? 0 == 0 } }
    let finding = try LevelDBCleanShutdownMarker.compare(with: files)
    let tolerance: LevelDBLog.Tolerance =
      switch finding {
      case .matching, .unreadable: .nothing
      case .outdated: .unacknowledged
      case .absent: try LevelDBUnsyncedMarker.exists(in: files) ? .unsynced : .unacknowledged
      }
    var hasNoTables = list.tables.isEmpty
    if list.current != nil {
      if tolerance != .nothing {
        try LevelDBManifest.completeSwitch(in: files)
        try LevelDBManifest.dropUnfinished(in: files)
      }
      let manifest = try LevelDBManifest(in: files)
      try manifest.verifyTables(in: files)
      if finding != .matching {
        try LevelDBLog.verifyPresence(in: files, of: manifest)
        try LevelDBLog.recover(in: files, of: manifest, tolerating: tolerance)
      }
      // After a crash during the first batches, their table may be on disk, while neither its description nor the log
      // is.
      if tolerance == .unsynced, manifest.isUnused { hasNoTables = true }
    } else if try finding != .absent || !hasNoTables || !hasEmptyLogs() {
      // A crash while the database is being created leaves manifests and a log without batches, and nothing
      // else.
      throw StorageError(.corrupted, "The LevelDB database in \(files.path) has lost its file CURRENT.")
    }
    // The following steps need space.
    files.releaseReserve()
    // Written first, so that it exists whenever logs may lack a sync.
    if durability == .process { try LevelDBUnsyncedMarker.write(to: files) }
    if finding != .absent { try files.remove(LevelDBCleanShutdownMarker.name) }
    // Removed after the marker, which may list one of these files.
    try files.removeUnfinished()
    // Recovery may have truncated all contents of a log.
    return try hasNoTables && hasEmptyLogs()
  }
}
