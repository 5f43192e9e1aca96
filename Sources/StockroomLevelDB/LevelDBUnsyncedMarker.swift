/// Marks logs that were written at `Durability.process`: the file exists from before the first such write
/// until an engine at `Durability.full` has the database open.
///
/// LevelDB syncs tables and manifests regardless of the durability, so a power cut may leave only the logs
/// with missing pages. In synced logs, a missing page is corruption (rule F2).
enum LevelDBUnsyncedMarker {
  private static let name = "STOCKROOM.unsynced"

  static func exists(in files: LevelDBFiles) throws -> Bool { try files.exists(name) }

  static func write(to files: LevelDBFiles) throws {
    if try exists(in: files) { return }
    try files.replace(name, with: Array("The logs are written without waiting for the disk.\n".utf8))
    try files.synchronize()
  }

  static func remove(from files: LevelDBFiles) throws { try files.remove(name) }
}
