import Foundation
import StockroomCore
import StockroomFileSystem
import StockroomLMDB
import StockroomLevelDB
import StockroomPostgreSQL
import StockroomSQLite

extension Place {
  /// What a command does with a place.
  enum Use: Sendable {
    /// The command reads. The place must exist.
    case reading
    /// The command changes entries, or subscribes to changes. The place must exist.
    case writing
    /// The command changes entries. The place is created if it does not exist.
    case creating
  }

  /// Opens the place. For reading, the engine is opened as read-only, except LMDB and LevelDB, which write to their
  /// files even to read.
  ///
  /// - Throws: ``PlaceAbsent`` if the place does not exist and `use` is not `creating`; what the engine throws.
  func open(for use: Use) async throws -> any StorageEngine {
    if use != .creating { try requirePresence() }
    switch self {
    case .local(let engine, let path): return try engine.open(path, for: use)
    case .postgreSQL(let url):
      let access: StorageAccess = use == .creating ? .readWrite : .readOnly
      let engine = try await PostgreSQLStorageEngine(url.connection, namespace: url.namespace, access: access)
      guard use == .writing else { return engine }
      // The read-only engine has verified that the place exists.
      try await engine.close()
      return try await PostgreSQLStorageEngine(url.connection, namespace: url.namespace)
    }
  }
}

extension Place.LocalEngine {
  fileprivate func open(_ path: String, for use: Place.Use) throws -> any StorageEngine {
    let access: StorageAccess = use == .reading ? .readOnly : .readWrite
    func directory(_ path: String) -> FileManager.Directory {
      FileManager.Directory(url: URL(commandLinePath: path, directoryHint: .isDirectory))
    }
    switch self {
    case .sqlite:
      guard let location = SQLiteLocation(path: path) else {
        throw StorageError(
          .unsupported, "\(path.escaped) is a file whose name does not end with \(SQLiteLocation.suffix).")
      }
      return try SQLiteStorageEngine(
        directory: directory(location.directory), databaseFilename: location.filename, access: access)
    case .lmdb: return try LMDBStorageEngine(directory: directory(path))
    case .leveldb: return try LevelDBStorageEngine(directory: directory(path))
    case .files: return try DiskStorageEngine(directory: directory(path), access: access)
    }
  }
}
