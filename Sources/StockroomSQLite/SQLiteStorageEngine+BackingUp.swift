import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension SQLiteStorageEngine: BackupEngine {
  /// Writes the database to a new file of the same name in the directory, with `VACUUM INTO`.
  ///
  /// One read transaction on a separate connection and thread: neither reads nor writes wait for it, and none
  /// of them makes it start over, as `sqlite3_backup_step` does when another process writes between two
  /// steps. In the meantime the log cannot start over, so it grows with each write, and a write that finds 16
  /// MiB in it waits as for any long read: see "The log". The copy has no free pages, and no removed data.
  ///
  /// Throws as `BackupEngine.backUp(to:)`.
  public func backUp(to directory: FileManager.Directory) async throws {
    let database = try database
    try await BackupDirectory.make(at: directory) { unfinished in
      let name = URL(filePath: database.path).lastPathComponent
      try await database.readApart { try $0.copy(to: name, in: unfinished.path) }
    }
  }
}

extension SQLiteStorageEngine: SnapshotStreamingEngine {
  package func forEachEntry(_ body: @escaping @Sendable (StorageEntry) throws -> Void) async throws {
    try await database.readApart { connection in
      try connection.transaction(.beginReading) {
        var keys: [(sequence: UInt64, key: CacheKey)] = []
        try connection.run(.allSequences) { statement in
          while try statement.step() {
            keys.append((UInt64(clamping: statement.number(at: 1)), try statement.key(at: 0)))
          }
        }
        for key in keys.keysByCreation() {
          try connection.checkInterruption()
          guard let entry = try connection.entry(of: key) else {
            throw StorageError(.corrupted, "The SQLite database finds no \(key), which it lists.")
          }
          try body(entry)
        }
      }
    }
  }
}

extension SQLiteConnection {
  /// Writes the current state of the database to a new file in a directory, and waits until it is on the
  /// disk.
  fileprivate func copy(to name: String, in directory: String) throws {
    try checkInterruption()
    let file = try FileDescriptor.openDirectory(atPath: directory).makeFile(name, .owner)
    guard let file else { throw StorageError(.io, "\(directory)/\(name) was created by another program.") }
    // Without symbolic links, which SQLite is opened to refuse.
    let path = try FileManager.Directory(url: URL(filePath: directory)).resolvedPath + "/" + name
    // SQLite treats an empty file as one that it may write to: https://sqlite.org/lang_vacuum.html
    try execute("VACUUM INTO '\(path.replacingScalar("'", with: "''"))'")
    try file.synchronize()
  }
}
