import StockroomCore

/// Syncs the names in the directory of a database. LevelDB syncs the name of a new log too late: it acknowledges
/// batches in the log before that. It never syncs the rename of CURRENT, although it then removes the manifest that
/// CURRENT named before. A crash of the machine could lose either name.
struct LevelDBDirectorySync {
  private struct Log {
    let number: UInt64
    let identity: FileIdentity
    var size: Int
  }

  /// The log to which batches are written.
  private var log: Log?

  /// Syncs the names of a database that has just been opened.
  init(syncing files: LevelDBFiles) throws {
    try files.synchronize()
    log = try Self.newestLog(in: files)
  }

  /// Verifies that the log is as long as it was after the last batch, since LevelDB would continue after a
  /// gap.
  ///
  /// - Throws: `StorageError` with code `io` if it has been truncated.
  func checkLog(in files: LevelDBFiles) throws {
    guard let log, let status = try files.status(of: LevelDBFileList.logName(log.number)),
      status.identity == log.identity, status.size < log.size
    else { return }
    throw cutOff(in: files)
  }

  /// Verifies that the last batch is in a log that the next opening finds.
  ///
  /// Usually costs a check of one file.
  ///
  /// - Parameter isSyncing: Whether to sync the name of a new log, if LevelDB has begun one for the batch.
  /// - Throws: `StorageError` with code `io` if the log has been truncated or replaced.
  mutating func followLog(in files: LevelDBFiles, syncing isSyncing: Bool) throws {
    if let log, let status = try files.status(of: LevelDBFileList.logName(log.number)),
      status.identity == log.identity, status.size > log.size
    {
      self.log?.size = status.size
      return
    }
    if isSyncing { try files.synchronize() }
    guard let newest = try Self.newestLog(in: files), newest.number > log?.number ?? 0, newest.size > 0 else {
      throw cutOff(in: files)
    }
    log = newest
  }

  private func cutOff(in files: LevelDBFiles) -> StorageError {
    let name = log.map { "/" + LevelDBFileList.logName($0.number) } ?? ""
    return StorageError(
      .io, "\(files.path)\(name) has been truncated or replaced while the database was open.")
  }

  private static func newestLog(in files: LevelDBFiles) throws -> Log? {
    guard let name = try LevelDBFileList(in: files).logs.last,
      let number = LevelDBFileList.number(ofLog: name), let status = try files.status(of: name)
    else { return nil }
    return Log(number: number, identity: status.identity, size: status.size)
  }
}

extension LevelDBManifest {
  /// After a crash: makes CURRENT name the newest manifest that is complete.
  ///
  /// LevelDB switches to a new manifest when it opens a database, and removes the files that only the old one needs.
  /// After a crash, these removals may be on disk although the rename of CURRENT is not. A complete manifest was synced
  /// after all of its files, so it can replace the older one, and must if files of that one have been removed. Only the
  /// name of its log may be missing, if nothing was written to the log yet.
  static func completeSwitch(in files: LevelDBFiles) throws {
    guard let current = try? number(ofManifest: currentName(in: files)) else { return }
    let manifests = try LevelDBFileList(in: files).manifests
      .compactMap { name in number(ofManifest: name).map { (name: name, number: $0) } }
      .filter { $0.number > current }
      .sorted { $0.number > $1.number }
    for manifest in manifests where try isComplete(manifest.name, in: files) {
      let log = LevelDBFileList.logName(try LevelDBManifest(manifest.name, in: files).logNumber)
      if try !files.exists(log) { try files.replace(log, with: []) }
      try files.replace("CURRENT", with: Array("\(manifest.name)\n".utf8))
      return try files.synchronize()
    }
  }

  /// After a crash: truncates the part of the manifest that describes tables that were not completed.
  ///
  /// LevelDB syncs the names of new tables before it syncs their descriptions in the manifest, but the
  /// descriptions may reach the disk earlier. Until the manifest has been synced, the tables and the log that
  /// it replaces still exist.
  ///
  /// - Throws: `StorageError` with code `corrupted` if tables are missing that existed.
  static func dropUnfinished(in files: LevelDBFiles) throws {
    let name = try currentName(in: files)
    let whole = try LevelDBManifest(name, in: files)
    do {
      try whole.verifyTables(in: files)
    } catch let error as StorageError where error.code == .corrupted {
      let logs = try LevelDBFileList(in: files).logs
      for count in (1..<max(1, whole.ends.count)).reversed() {
        let earlier = try LevelDBManifest(name, in: files, records: count)
        let hasLog = logs.contains { LevelDBFileList.number(ofLog: $0) == earlier.logNumber }
        guard earlier.isSufficient, hasLog,
          try earlier.hasItsTables(in: files)
        else { continue }
        return try files.truncate(name, to: whole.ends[count - 1])
      }
      throw error
    }
  }

  private func hasItsTables(in files: LevelDBFiles) throws -> Bool {
    do {
      try verifyTables(in: files)
      return true
    } catch let error as StorageError where error.code == .corrupted {
      return false
    }
  }

  private static func isComplete(_ name: String, in files: LevelDBFiles) throws -> Bool {
    do {
      let manifest = try LevelDBManifest(name, in: files)
      return try manifest.isComplete && manifest.hasItsTables(in: files)
    } catch let error as StorageError where error.code == .corrupted {
      return false
    }
  }

  private static func number(ofManifest name: String) -> UInt64? {
    name.hasPrefix("MANIFEST-") ? UInt64(name.dropFirst("MANIFEST-".count)) : nil
  }
}
