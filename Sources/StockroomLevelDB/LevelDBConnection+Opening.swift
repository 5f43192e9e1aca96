import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension LevelDBConnection {
  /// The maximum number of bytes of logs that a closed database leaves to the next opening, unless moving
  /// them to a table has failed (rule O6). Reading this many takes less time than moving them.
  static let greatestLogAtOpening = 64 << 10

  /// Opens the database, and verifies that it contains everything from its logs.
  ///
  /// - Parameter mayCreate: Whether to create a database if there is none.
  static func open(
    _ files: LevelDBFiles, _ paths: LevelDBPaths, _ writeBufferSize: Int, _ durability: Durability,
    mayCreate: Bool
  ) throws -> LevelDBHandle {
    // LevelDB does not decide this: if it cannot check for CURRENT, it creates an empty database and removes the
    // existing tables.
    let isNew = try !files.exists("CURRENT")
    guard mayCreate || !isNew else {
      throw StorageError(.io, "\(files.path)/CURRENT has been removed while the database was open.")
    }
    func open() throws -> LevelDBHandle {
      try LevelDBHandle(paths, isNew: isNew, writeBufferSize: writeBufferSize, durability: durability)
    }
    if isNew { return try open() }
    let manifest = try LevelDBManifest(in: files).joinRecords(in: files)
    let logs = try LevelDBKeptLogs(in: files, since: manifest.logNumber)
    let handle = try open()
    try logs.restore(to: handle)
    try logs.remove()
    return handle
  }

  static func readMetadata(_ handle: LevelDBHandle, isNew: Bool) throws -> LevelDBMetadata {
    if let found = try handle.metadata() { return found }
    guard isNew else {
      throw StorageError(.corrupted, "The LevelDB database in \(handle.path) has lost its metadata.")
    }
    return LevelDBMetadata()
  }

  /// On a small device, the log must not take a large part of the space.
  static func writeBufferSize(at path: String) -> Int {
    guard let size = FileManager.Directory.volumeSize(at: path) else { return 4 << 20 }
    return max(64 << 10, min(8 << 20, size / 64))
  }
}
