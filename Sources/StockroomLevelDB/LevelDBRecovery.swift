import StockroomCore

/// Checks the files of a database before LevelDB does, which would mistake corruption for a crash, or trap.
enum LevelDBRecovery {
  /// Costs a check of each table, and reading the logs and the manifest, whose size does not depend on the
  /// size of the database.
  ///
  /// - Returns: Whether the database may be empty.
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
      // Of the first batches, the table may have reached the disk, but neither its description nor the log.
      if tolerance == .unsynced, manifest.isUnused { hasNoTables = true }
    } else if try finding != .absent || !hasNoTables || !hasEmptyLogs() {
      // A crash while the database is being created leaves manifests and a log without batches, and nothing
      // else.
      throw StorageError(.corrupted, "The LevelDB database in \(files.path) has lost its file CURRENT.")
    }
    // What follows needs space.
    files.releaseReserve()
    // First, so that the state of the logs is recorded at every moment.
    if durability == .process { try LevelDBUnsyncedMarker.write(to: files) }
    if finding != .absent { try files.remove(LevelDBCleanShutdownMarker.name) }
    // After the marker, which may describe one.
    try files.removeUnfinished()
    // The truncated part of a log may have been its whole contents.
    return try hasNoTables && hasEmptyLogs()
  }
}
