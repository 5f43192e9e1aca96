import Foundation
import Stockroom
import StockroomFileSystem
import StockroomLMDB
import StockroomLevelDB
import StockroomMemory
import StockroomPostgreSQL

/// The engine that stores the notes, with its directory or database. All other code is the same for every engine.
enum NotePlace: Sendable {
  case memory
  case files(FileManager.Directory)
  case sqlite(FileManager.Directory)
  case lmdb(FileManager.Directory)
  case levelDB(FileManager.Directory)
  case postgreSQL(String)

  /// Opens the engine.
  func open() async throws -> any StorageEngine {
    switch self {
    case .memory: MemoryStorageEngine()
    case .files(let directory): try DiskStorageEngine(directory: directory)
    case .sqlite(let directory): try SQLiteStorageEngine(directory: directory)
    case .lmdb(let directory): try LMDBStorageEngine(directory: directory)
    case .levelDB(let directory): try LevelDBStorageEngine(directory: directory)
    case .postgreSQL(let connection):
      try await PostgreSQLStorageEngine(connection, namespace: "livenotes", timeLimit: .seconds(10))
    }
  }
}

/// The store and its engine.
@MainActor
struct NoteStore {
  let notes: Store<Note>
  private let engine: any StorageEngine

  /// Opens the engine and loads the notes.
  init(opening place: NotePlace) async throws {
    let engine = try await place.open()
    self.engine = engine
    notes = try await Store(storage: engine)
  }

  func close() async throws { try await engine.close() }
}
