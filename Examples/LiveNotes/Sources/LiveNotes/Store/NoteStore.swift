import Foundation
import Stockroom
import StockroomFileSystem
import StockroomLMDB
import StockroomLevelDB
import StockroomMemory
import StockroomPostgreSQL

/// The engine that stores the notes. Everything else is the same for all of them.
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

/// The store: the single source of truth, and the engine behind it.
@MainActor
struct NoteStore {
  let notes: Store<Note>
  private let engine: any StorageEngine

  /// Opens the place and loads the notes.
  init(opening place: NotePlace) async throws {
    let engine = try await place.open()
    self.engine = engine
    notes = try await Store(storage: engine)
  }

  func close() async throws { try await engine.close() }
}
