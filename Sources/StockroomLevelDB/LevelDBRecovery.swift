import StockroomCore

/// Looks through the files of a database before LevelDB does, which would take corruption for a crash, or trap.
enum LevelDBRecovery {
  /// Costs a look at each table, and reading the logs and the manifest, whose size does not depend on how much the
  /// database holds.
  ///
  /// - Returns: Whether the database may hold nothing at all.
  /// - Throws: `StorageError` with code `corrupted` if something is missing that was there, or as the system says.
  static func prepare(_ files: LevelDBFiles, for durability: Durability) throws -> Bool {
    let list = try LevelDBFileList(in: files)
    try list.verifyKinds(in: files)
    func isEmpty() throws -> Bool {
      try list.tables.isEmpty && list.logs.allSatisfy { try files.size(of: $0) ?? 0 == 0 }
    }
    let finding = try LevelDBCleanShutdownMarker.compare(with: files)
    let tolerance: LevelDBLog.Tolerance =
      switch finding {
      case .matching, .unreadable: .nothing
      case .outdated: .unacknowledged
      case .absent: try LevelDBUnsyncedMarker.exists(in: files) ? .unsynced : .unacknowledged
      }
    if list.current != nil {
      if tolerance != .nothing {
        try LevelDBManifest.completeSwitch(in: files)
        try LevelDBManifest.dropUnfinished(in: files)
      }
      let manifest = try LevelDBManifest(in: files)
      try manifest.verifyTables(in: files)
      if finding != .matching {
        try LevelDBLog.recover(in: files, of: manifest, tolerating: tolerance)
      }
    } else if try finding != .absent || !isEmpty() {
      // A crash while the database is being made leaves manifests and a log without batches, and nothing else.
      throw StorageError(.corrupted, "The LevelDB database in \(files.path) has lost its file CURRENT.")
    }
    // First this, so that at every moment something tells what has become of the logs.
    if durability == .process { try LevelDBUnsyncedMarker.write(to: files) }
    if finding != .absent { try files.remove(LevelDBCleanShutdownMarker.name) }
    // What was truncated from a log may have been all that was in it.
    return try isEmpty()
  }
}
