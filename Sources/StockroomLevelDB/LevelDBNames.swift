import StockroomCore

/// The names in the directory of a database, of which LevelDB syncs some too late for the death of the machine, and one
/// not at all: it neither waits for the name of a new log before it acknowledges what is in it, nor for that of CURRENT
/// before it removes the manifest that CURRENT named before.
struct LevelDBNames {
  /// The log that batches go to, and how long it is.
  private var log: (path: String, size: Int)?

  /// Puts the names of a database that has just been opened on the disk.
  init(syncing directory: String) throws {
    try synchronize(directory)
  }

  /// Puts the name of a new log on the disk, if LevelDB has begun one for the last batch.
  ///
  /// Costs a look at a file, mostly.
  mutating func synchronizeLog(in directory: String) throws {
    if let log, let size = try LevelDBFiles.size(of: log.path), size > log.size {
      self.log?.size = size
      return
    }
    try synchronize(directory)
  }

  private mutating func synchronize(_ directory: String) throws {
    try LevelDBFiles.synchronize(directory)
    // Six digits at least: the order of names is that of numbers, as far as anybody will get.
    log = try LevelDBFileList(in: directory).logs.last.map { name in
      let path = directory + "/" + name
      return (path, try LevelDBFiles.size(of: path) ?? 0)
    }
  }
}

extension LevelDBManifest {
  /// After a crash: lets CURRENT name the newest manifest that is complete.
  ///
  /// LevelDB goes over to a new manifest when it opens a database, and removes what only the old one needs. The rename of
  /// CURRENT need not be on the disk then, while the removals are. A manifest that is complete has been synced after
  /// everything in it, so it is as good as the one before, and the better one if something has been removed.
  static func completeSwitch(in directory: String) throws {
    guard let current = try? number(ofManifest: currentName(in: directory)) else { return }
    let manifests = try LevelDBFileList(in: directory).manifests
      .compactMap { name in number(ofManifest: name).map { (name: name, number: $0) } }
      .filter { $0.number > current }
      .sorted { $0.number > $1.number }
    for manifest in manifests where try isComplete(manifest.name, in: directory) {
      try LevelDBFiles.replace(directory + "/CURRENT", with: Array("\(manifest.name)\n".utf8))
      return try LevelDBFiles.synchronize(directory)
    }
  }

  /// After a crash: cuts off what the manifest says of tables that never came to be.
  ///
  /// LevelDB syncs the names of new tables before it syncs what the manifest says of them, but that may reach the disk by
  /// itself. As long as it has not been synced, the tables and the log that it replaces are still there.
  ///
  /// - Throws: `StorageError` with code `corrupted` if tables are missing that were there.
  static func dropUnfinished(in directory: String) throws {
    let name = try currentName(in: directory)
    let whole = try LevelDBManifest(name, in: directory)
    do {
      try whole.verifyTables(in: directory)
    } catch let error as StorageError where error.code == .corrupted {
      let logs = try LevelDBFileList(in: directory).logs
      for count in (1..<max(1, whole.ends.count)).reversed() {
        let earlier = try LevelDBManifest(name, in: directory, records: count)
        let hasLog = logs.contains { $0.dropLast(".log".count).drop { $0 == "0" } == "\(earlier.logNumber)" }
        guard earlier.fields.isSuperset(of: required), hasLog,
          try earlier.hasItsTables(in: directory)
        else { continue }
        return try LevelDBFiles.truncate(directory + "/" + name, to: whole.ends[count - 1])
      }
      throw error
    }
  }

  private func hasItsTables(in directory: String) throws -> Bool {
    do {
      try verifyTables(in: directory)
      return true
    } catch let error as StorageError where error.code == .corrupted {
      return false
    }
  }

  private static func isComplete(_ name: String, in directory: String) throws -> Bool {
    do {
      let manifest = try LevelDBManifest(name, in: directory)
      return try manifest.isComplete && manifest.hasItsTables(in: directory)
    } catch let error as StorageError where error.code == .corrupted {
      return false
    }
  }

  private static func number(ofManifest name: String) -> UInt64? {
    name.hasPrefix("MANIFEST-") ? UInt64(name.dropFirst("MANIFEST-".count)) : nil
  }
}
